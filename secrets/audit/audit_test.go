package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/mount"
)

// device makes one that the test closes.
func device(t testing.TB, kind string, options ...string) *Device {
	t.Helper()
	d, err := open(t, Rules{Unsafe: true, Prefix: true}, kind, options...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func open(t testing.TB, rules Rules, kind string, options ...string) (*Device, error) {
	t.Helper()
	c := &Config{Path: kind + "/", Type: kind, Options: map[string]string{}, Salt: []byte("salt")}
	for i := 0; i < len(options); i += 2 {
		c.Options[options[i]] = options[i+1]
	}
	d, err := Open(c, rules, slog.New(slog.DiscardHandler), nil)
	if err == nil {
		t.Cleanup(d.Close)
	}
	return d, err
}

func entry() *Entry {
	q := &secrets.Request{ID: "id-1", Op: secrets.Update, Path: "secret/data/app",
		Caller: secrets.Caller{Token: "hvs.mine"},
		Origin: secrets.Origin{Remote: netip.MustParseAddr("10.0.0.7"), RemotePort: 4711}, Wrap: time.Minute,
		Body: []byte(`{"data":{"pass\"word":"s3cr\u0065t","n":[1,true,null,"x"]},"clear":{"a":"shown"},"k":"v"}`)}
	return &Entry{Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Request: q,
		Mount: &mount.Entry{Path: "secret/", Type: "kv", Accessor: "kv_1",
			Config: mount.Config{AuditRequestClear: []string{"clear"}}},
		Auth: Auth{ID: "hvs.mine", Accessor: "acc", DisplayName: "token", Verdict: Verdict{Policies: []string{"app"},
			Decided: true,
			Allowed: true, Granting: []string{"app"}},
			Metadata: map[string]string{"user": "ann"}, Type: "service", TTL: time.Hour}}
}

func lines(t testing.TB, path string) (out []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// at walks into nested objects.
func at(m any, path ...string) any {
	for _, name := range path {
		o, _ := m.(map[string]any)
		m = o[name]
	}
	return m
}

func TestForm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	d := device(t, "file", "file_path", path)
	e := entry()
	e.Version, e.Request.From, e.Auth.NumUses, e.Auth.Uses = "v1+builtin", "s2", 4, true
	e.Request.Headers = map[string][]string{"x-a": {"shown", "twice"}, "x-b": {"s3cret"}, "x-c": {"not asked for"}}
	e.HashHeaders = map[string]bool{"x-a": false, "x-b": true}
	e.Request.Certificates = [][]byte{certificate(t, 4711)}
	if err := Record(t.Context(), []*Device{d}, e); err != nil {
		t.Fatal(err)
	}
	e.Answer, e.Error = true, "permission denied"
	e.Response = &Response{Data: []byte(`{"keys":["a","b"],"key_info":{"a":{}}}`), Warnings: []string{"w"},
		LeaseID: "secret/1",
		Auth:    &Auth{ID: "hvs.new", Accessor: "acc2", NumUses: 3, Verdict: Verdict{NoDefault: true}},
		Wrap:    &Wrap{Token: "hvs.wrap", Accessor: "acc3", TTL: time.Minute, Path: "p"}}
	if err := Record(t.Context(), []*Device{d}, e); err != nil {
		t.Fatal(err)
	}
	got := lines(t, path)
	if len(got) != 2 {
		t.Fatalf("%d lines", len(got))
	}
	hash := func(s string) string { return d.Hash(s) }
	for _, want := range []struct {
		line  int
		value any
		path  string
	}{
		{0, "request", "type"}, {0, "2026-01-02T03:04:05.000000006Z", "time"}, {0, hash("hvs.mine"), "auth client_token"},
		{0, hash("acc"), "auth accessor"},
		{0, "token", "auth display_name"}, {0, "[app]", "auth policies"}, {0, true, "auth policy_results allowed"},
		{0, "map[user:ann]", "auth metadata"}, {0, 3600.0, "auth token_ttl"},
		{0, "[map[name:app namespace_id:root type:acl]]", "auth policy_results granting_policies"},
		{0, "id-1", "request id"}, {0, "update", "request operation"}, {0, "secret/", "request mount_point"},
		{0, "kv", "request mount_type"}, {0, "kv_1", "request mount_accessor"},
		{0, "secret", "request mount_class"}, {0, hash("hvs.mine"), "request client_token"},
		{0, hash("acc"), "request client_token_accessor"}, {0, "root", "request namespace id"},
		{0, "secret/data/app", "request path"}, {0, "10.0.0.7", "request remote_address"}, {0, 4711.0, "request remote_port"},
		{0, 60.0, "request wrap_ttl"},
		{0, hash("s3cret"), `request data data pass"word`}, {0, fmt.Sprint([]any{1, true, nil, hash("x")}),
			"request data data n"}, {0, "shown", "request data clear a"}, {0, hash("v"), "request data k"},
		{0, "v1+builtin", "request mount_running_version"}, {0, "[shown twice]", "request headers x-a"},
		{0, fmt.Sprint([]any{hash("s3cret")}), "request headers x-b"},
		{0, nil, "request headers x-c"}, {0, "4711", "request client_certificate_serial_number"}, {0, "s2", "forwarded_from"},
		{0, 4.0, "auth remaining_uses"},
		{0, nil, "auth no_default_policy"}, {1, true, "response auth no_default_policy"},
		{1, nil, "response auth remaining_uses"}, {1, "v1+builtin", "response mount_running_version"},
		{0, nil, "response"}, {0, nil, "error"},
		{1, "response", "type"}, {1, "permission denied", "error"}, {1, fmt.Sprint([]any{hash("a"), hash("b")}),
			"response data keys"}, {1, "[w]", "response warnings"},
		{1, "secret/1", "response secret lease_id"}, {1, hash("hvs.new"), "response auth client_token"},
		{1, 3.0, "response auth num_uses"}, {1, hash("hvs.wrap"), "response wrap_info token"},
	} {
		v := at(got[want.line], strings.Split(want.path, " ")...)
		if _, plain := v.([]any); plain || fmt.Sprintf("%T", v) == "map[string]interface {}" {
			v = fmt.Sprint(v)
		}
		if v != want.value {
			t.Errorf("line %d, %s: %v, want %v", want.line, want.path, v, want.value)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log's mode: %v, %v", info, err)
	}
	if want := "hmac-sha256:"; !strings.HasPrefix(hash("x"), want) || len(hash("x")) != len(want)+64 {
		t.Errorf("a hash is %q", hash("x"))
	}
}

// certificate is one that signs itself, as DER.
func certificate(t *testing.T, serial int64) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	der, err := x509.CreateCertificate(nil, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestJSONx: entries as XML say the same, and what is secret stays hashed.
func TestJSONx(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	d := device(t, "file", "file_path", path, "format", "jsonx", "prefix", "@cee: ")
	e := entry()
	e.Request.Body = []byte(`{"a<b":"s3cret","n":[1,true,null],"empty":{}}`)
	if err := Record(t.Context(), []*Device{d}, e); err != nil {
		t.Fatal(err)
	}
	d.Close()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, want := range []string{`@cee: <json:object xmlns:json="http://www.ibm.com/xmlns/prod/2009/jsonx"><json:string name="time">`, `<json:object name="request">`,
		`<json:string name="a&lt;b">` + d.Hash("s3cret") + `</json:string>`,
		`<json:array name="n"><json:number>1</json:number><json:boolean>true</json:boolean><json:null /></json:array>`,
		`<json:object name="empty"></json:object>`} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "s3cret") || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "</json:object>\n") {
		t.Errorf("is no line of its own without secrets: %s", text)
	}
	dec := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "@cee: ")))
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("no XML: %v\n%s", err, text)
		}
	}
}

func TestOptions(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	e := entry()
	e.Answer = true
	e.Request.Op, e.Request.Path = secrets.List, "secret/data/"
	e.Response = &Response{Data: []byte(`{"keys":["a","b"],"key_info":{"a":{"x":"y"}},"n":"z"}`)}
	devices := []*Device{
		device(t, "file", "file_path", path("raw"), "log_raw", "true", "mode", "0640"),
		device(t, "file", "file_path", path("acc"), "hmac_accessor", "false"),
		device(t, "file", "file_path", path("elide"), "elide_list_responses", "true", "fsync", "true"),
		device(t, "file", "file_path", path("prefix"), "prefix", "@cee: "),
	}
	if err := os.WriteFile(path("acc"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Record(t.Context(), devices, e); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		d.Close() // writes what waits
	}
	if err := Record(t.Context(), devices, e); err != ErrClosed {
		t.Errorf("with closed devices: %v", err)
	}
	raw := lines(t, path("raw"))[0]
	if at(raw, "auth", "client_token") != "hvs.mine" || at(raw, "response", "data", "n") != "z" ||
		at(raw, "request", "data", "data", `pass"word`) != "s3cret" {
		t.Errorf("raw: %v", raw)
	}
	acc := lines(t, path("acc"))[0]
	if at(acc, "auth", "accessor") != "acc" || at(acc, "auth", "client_token") == "hvs.mine" {
		t.Errorf("accessor: %v", acc)
	}
	elided := lines(t, path("elide"))[0]
	if at(elided, "response", "data", "keys") != 2.0 || at(elided, "response", "data", "key_info") != 1.0 ||
		at(elided, "response", "data", "n") != devices[2].Hash("z") {
		t.Errorf("elided: %v", elided)
	}
	if text, err := os.ReadFile(path("prefix")); err != nil || !bytes.HasPrefix(text, []byte(`@cee: {"time":`)) {
		t.Errorf("prefix: %q, %v", text, err)
	}
	for name, mode := range map[string]fs.FileMode{"raw": 0o640, "acc": 0o600} {
		if info, err := os.Stat(path(name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode of %s: %v, %v", name, info.Mode(), err)
		}
	}
}

// Who may make a device must not be able to make the server write anywhere, or run what it wrote.
func TestRefusedDevices(t *testing.T) {
	folder := t.TempDir()
	rules := Rules{Folder: folder}
	for _, test := range []struct {
		kind    string
		options []string
		rules   Rules
		ok      bool
	}{
		{"file", []string{"file_path", folder + "/a"}, rules, true},
		{"file", []string{"file_path", folder + "/a", "mode", "0000"}, rules, true},
		{"file", []string{"file_path", "stdout"}, rules, true}, {"file", []string{"path", "discard"}, Rules{}, true},
		{"syslog", nil, rules, true},
		{"file", nil, rules, false}, {"file", []string{"file_path", "/etc/passwd"}, rules, false},
		{"file", []string{"file_path", folder}, rules, false},
		{"file", []string{"file_path", folder + "/../b"}, rules, false}, {"file", []string{"file_path", folder + "x"}, rules,
			false}, {"file", []string{"file_path", "a"}, rules, false},
		{"file", []string{"file_path", "/tmp/a"}, Rules{}, false},
		{"file", []string{"file_path", "/tmp/a"}, Rules{Unsafe: true}, true},
		{"file", []string{"file_path", folder + "/a", "mode", "0700"}, rules, false},
		{"file", []string{"file_path", folder + "/a", "mode", "0611"}, Rules{Unsafe: true}, false},
		{"file", []string{"file_path", folder + "/a", "mode", "x"}, rules, false},
		{"file", []string{"file_path", folder + "/a", "mode", "04600"}, rules, false},
		{"file", []string{"file_path", folder + "/a", "prefix", "#!/bin/sh\n"}, rules, false},
		{"file", []string{"file_path", folder + "/a", "format", "jsonx"}, rules, true},
		{"file", []string{"file_path", folder + "/a", "format", "xml"}, rules, false},
		{"file", []string{"file_path", folder + "/a", "log_raw", "perhaps"}, rules, false},
		{"file", []string{"file_path", folder + "/a", "filepath", "b"}, rules, false},
		{"syslog", []string{"facility", "NONE"}, rules, false}, {"syslog", []string{"tag", "a b"}, rules, false},
		{"socket", []string{"address", "127.0.0.1:1"}, rules, false}, {"socket", nil, Rules{Unsafe: true}, false},
		{"socket", []string{"address", "x", "socket_type", "icmp"}, Rules{Unsafe: true}, false},
		{"socket", []string{"address", "x", "write_timeout", "0"}, Rules{Unsafe: true}, false},
		{"pigeon", nil, Rules{Unsafe: true}, false},
	} {
		_, err := open(t, test.rules, test.kind, test.options...)
		if (err == nil) != test.ok || (err != nil && !errkind.Is(err, errkind.Invalid)) {
			t.Errorf("%s %q under %+v: %v", test.kind, test.options, test.rules, err)
		}
	}
	outside := filepath.Join(t.TempDir(), "victim")
	if err := os.Symlink(outside, filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	d, err := open(t, rules, "file", "file_path", folder+"/link")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Reopen(); err == nil {
		t.Error("a link led out of the folder")
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a file was made outside the folder")
	}
}

func (d *Device) passedBy() bool { return !d.ready(time.Now()) }

// RELIABILITY B5: a device that hangs beside one that does not.
func TestBlockedBesideHealthy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	stuck, well := device(t, "file", "file_path", fifo(t)), device(t, "file", "file_path", path)
	both := []*Device{stuck, well}
	e := entry()
	small := e.Request.Body
	e.Request.Body = []byte(`{"x":[` + strings.Repeat("1,", 40<<10) + `1]}`) // more than a pipe takes
	n := 0
	polltest.Until(t, func() bool {
		n++
		if err := Record(t.Context(), both, e); err != nil {
			t.Fatalf("entry %d: %v", n, err)
		}
		e.Request.Body = small
		return stuck.passedBy()
	}, "the device that hangs to be passed by")
	for range 100 {
		if err := Record(t.Context(), both, e); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(lines(t, path)); got != n+100 {
		t.Errorf("%d lines of %d", got, n+100)
	}
}

// RELIABILITY B5: nothing takes entries: each is refused within 2 s, later ones at once.
func TestAllBlocked(t *testing.T) {
	d := device(t, "file", "file_path", fifo(t))
	e := entry()
	e.Request.Body = []byte(`{"x":[` + strings.Repeat("1,", 40<<10) + `1]}`)
	var err error
	for range 3 {
		if err = Record(t.Context(), []*Device{d}, e); err != nil {
			break
		}
	}
	if !errkind.Is(err, errkind.Internal) {
		t.Fatalf("with a device that hangs: %v", err)
	}
	if err := Record(t.Context(), []*Device{d, device(t, "file", "file_path", "discard")}, e); err == nil {
		t.Error("a device that cannot tell counted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Record(ctx, []*Device{d}, e); err == nil {
		t.Error("a request that ended was let through")
	}
}

// What fails is passed by, told, and taken back when it works again.
func TestFailures(t *testing.T) {
	well := device(t, "file", "file_path", filepath.Join(t.TempDir(), "log"))
	for name, bad := range map[string]*Device{
		"full disk":      device(t, "file", "file_path", "/dev/full"),
		"no folder":      device(t, "file", "file_path", "/none/such/log"),
		"no reader":      device(t, "socket", "address", filepath.Join(t.TempDir(), "s"), "socket_type", "unix"),
		"nobody listens": device(t, "socket", "address", "127.0.0.1:1"),
	} {
		if err := Record(t.Context(), []*Device{bad}, entry()); !errkind.Is(err, errkind.Internal) {
			t.Errorf("%s: %v", name, err)
		}
		if !bad.passedBy() {
			t.Errorf("%s: not passed by", name)
		}
		if err := Record(t.Context(), []*Device{bad, well}, entry()); err != nil {
			t.Errorf("%s beside a healthy one: %v", name, err)
		}
	}
	path := filepath.Join(t.TempDir(), "late", "log")
	late := device(t, "file", "file_path", path)
	if err := late.Reopen(); err == nil {
		t.Error("there is no folder, and it opens")
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	polltest.NoError(t, polltest.Deadline, func() error { return Record(t.Context(), []*Device{late}, entry()) },
		"the device to come back")
}

// A line that was cut by a failure is ended before the next.
func TestTornLine(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	s := &fileSink{f: f, torn: true}
	defer s.close()
	if n, err := s.write([]byte("a\nb\n"), []int{2, 4}); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "\na\nb\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestReopenAfterMove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	d := device(t, "file", "file_path", path)
	for i := range 2 {
		if err := Record(t.Context(), []*Device{d}, entry()); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			if err := d.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, b := len(lines(t, path)), len(lines(t, path+".1")); a != 1 || b != 1 {
		t.Errorf("%d and %d lines", a, b)
	}
}

func TestSocketAndSyslog(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 8)
	var readers sync.WaitGroup
	defer readers.Wait()
	readers.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
			got <- line
		}
	})
	if err := Record(t.Context(), []*Device{device(t, "socket", "address", l.Addr().String())}, entry()); err != nil {
		t.Fatal(err)
	}
	if line := polltest.Get(t, got, "a line over TCP"); !strings.HasPrefix(line, `{"time"`) {
		t.Errorf("over TCP: %q", line)
	}
	path := filepath.Join(t.TempDir(), "devlog")
	log, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(t, Rules{SyslogPaths: []string{"/none", path}}, "syslog", "facility", "local3", "tag", "corbel")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Record(t.Context(), []*Device{d}, entry()); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<16)
		if err := log.SetReadDeadline(time.Now().Add(polltest.Deadline)); err != nil {
			t.Fatal(err)
		}
		n, _, err := log.ReadFrom(buf)
		if err != nil || !strings.HasPrefix(string(buf[:n]), "<158>") ||
			!strings.Contains(string(buf[:n]), fmt.Sprintf(" corbel[%d]: {\"time\"", os.Getpid())) {
			t.Errorf("syslog: %q, %v", buf[:n], err)
		}
	}
	log.Close()
	if err := Record(t.Context(), []*Device{d}, entry()); err == nil {
		t.Error("a dead syslog took an entry")
	}
}

// Many at once: each line is there once and whole.
func TestManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	d := device(t, "file", "file_path", path)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range 100 {
				e := entry()
				e.Request.ID = fmt.Sprintf("%d-%d", i, n)
				if err := Record(t.Context(), []*Device{d}, e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	seen := map[any]bool{}
	for _, line := range lines(t, path) {
		seen[at(line, "request", "id")] = true
	}
	if len(seen) != 1600 {
		t.Errorf("%d of 1600 entries", len(seen))
	}
}

// Whatever the data, a line is JSON and shows no string of it.
func FuzzData(f *testing.F) {
	f.Add([]byte(`{"a":"PLANTED","b":["PLANTED",{"c":"x\\\"PLANTED"}],"n":1e3}`))
	f.Add([]byte(` [ "PLANTED" , { } , [ ] ] `))
	f.Add([]byte(`{"a":"PLANTED"`))
	f.Add([]byte(`"\ud800PLANTED"`))
	d := &Device{cfg: &settings{hashAccessor: true, elideLists: true}, hash: newHasher([]byte("s"))}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, lists := range []bool{false, true} {
			var r record
			r.data(raw, nil, lists)
			line := r.render(nil, d)
			if !json.Valid(line) {
				t.Fatalf("%q gives %q", raw, line)
			}
			var v any
			if json.Unmarshal(line, &v) == nil {
				judge(t, v)
			}
		}
	})
}

func judge(t *testing.T, v any) {
	switch x := v.(type) {
	case string:
		if !strings.HasPrefix(x, hashPrefix) {
			t.Fatalf("%q is shown", x)
		}
	case []any:
		for _, v := range x {
			judge(t, v)
		}
	case map[string]any:
		for _, v := range x {
			judge(t, v)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	d := device(b, "file", "file_path", filepath.Join(b.TempDir(), "log"))
	e := entry()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if err := Record(context.Background(), []*Device{d}, e); err != nil {
				b.Error(err)
			}
		}
	})
}
