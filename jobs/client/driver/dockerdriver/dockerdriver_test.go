package dockerdriver

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
)

// engineFake answers as an Engine does, for one container.
type engineFake struct {
	mu      sync.Mutex
	asked   []string
	created map[string]any
	image   bool // it is here
	holds   bool // a container holds a network
	ended   chan struct{}
	code    int
}

func frame(stream byte, text string) []byte {
	head := make([]byte, 8, 8+len(text))
	head[0] = stream
	binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
	return append(head, text...)
}

// ServeHTTP implements http.Handler.
func (f *engineFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, prefix)
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+path)
	image := f.image
	f.mu.Unlock()
	answer := func(code int, text string) { w.WriteHeader(code); _, _ = io.WriteString(w, text) }
	switch {
	case path == "/version":
		answer(200, `{"Version":"24.0.7","ApiVersion":"1.43","Os":"linux","Arch":"amd64"}`)
	case strings.HasPrefix(path, "/images/create"):
		f.mu.Lock()
		from := r.URL.Query().Get("fromImage")
		f.image = from == "redis" || from == "registry.k8s.io/pause"
		known := f.image
		f.mu.Unlock()
		if !known {
			answer(200, `{"status":"Pulling"}`+"\n"+`{"errorDetail":{"message":"no such"},"error":"pull access denied"}`)
			return
		}
		answer(200, `{"status":"Pulling from library/redis","id":"7"}`+"\n"+`{"status":"Status: Downloaded"}`+"\n")
	case strings.HasPrefix(path, "/images/"):
		if !image {
			answer(404, `{"message":"No such image: redis:7"}`)
			return
		}
		answer(200, `{}`)
	case path == "/containers/create":
		f.mu.Lock()
		f.created = nil
		_ = json.NewDecoder(r.Body).Decode(&f.created)
		f.holds = f.holds || strings.HasPrefix(r.URL.Query().Get("name"), "nomad_init_")
		f.mu.Unlock()
		answer(201, `{"Id":"c1","Warnings":[]}`)
	case path == "/containers/nomad_init_a1" && r.Method == http.MethodDelete:
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.holds {
			answer(404, `{"message":"No such container"}`)
			return
		}
		f.holds = false
		w.WriteHeader(204)
	case path == "/containers/nomad_init_a1/json":
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.holds {
			answer(404, `{"message":"No such container"}`)
			return
		}
		answer(200, `{"State":{"Running":true,"Pid":4711}}`)
	case path == "/containers/c1/logs":
		_, _ = w.Write(frame(1, "2026-01-01T00:00:00.000000001Z hello\n2026-01-01T00:00:00.5Z wor"))
		_, _ = w.Write(frame(1, "ld\n"))
		_, _ = w.Write(frame(2, "2026-01-01T00:00:01Z oops\n"))
		<-f.ended
	case path == "/containers/c1/wait":
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		select {
		case <-f.ended:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, `{"StatusCode":137}`)
	case path == "/containers/c1/json":
		f.mu.Lock()
		defer f.mu.Unlock()
		select {
		case <-f.ended:
			answer(200, fmt.Sprintf(`{"State":{"Running":false,"OOMKilled":true,"ExitCode":%d,"Error":""}}`, f.code))
		default:
			answer(200, `{"State":{"Running":true}}`)
		}
	case path == "/containers/c1/kill", path == "/containers/c1/stop":
		f.mu.Lock()
		defer f.mu.Unlock()
		if path == "/containers/c1/stop" {
			f.code = 137
			close(f.ended)
		}
		w.WriteHeader(204)
	case path == "/containers/c1/stats":
		answer(200, `{"pids_stats":{"current":3},"cpu_stats":{"cpu_usage":{"total_usage":300},"system_cpu_usage":2000,`+
			`"online_cpus":2},"precpu_stats":{"cpu_usage":{"total_usage":100},"system_cpu_usage":1000},`+
			`"memory_stats":{"usage":4096}}`)
	case path == "/containers/c1/exec":
		answer(201, `{"Id":"e1"}`)
	case path == "/exec/e1/start":
		_, _ = io.ReadAll(r.Body)
		conn, buf, _ := w.(http.Hijacker).Hijack()
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = conn.Write(frame(1, "got "+line))
	case path == "/exec/e1/json":
		answer(200, `{"ExitCode":3,"Running":false}`)
	default:
		w.WriteHeader(204)
	}
}

func fake(t *testing.T) (*engineFake, *Driver) {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	f := &engineFake{ended: make(chan struct{})}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() { _ = srv.Close(); <-done; _ = os.RemoveAll(dir) })
	d, err := New(Name, "unix://"+filepath.Join(dir, "s"), false)
	if err != nil {
		t.Fatal(err)
	}
	return f, d
}

func task(t *testing.T, config map[string]any) *driver.Task {
	t.Helper()
	dir := t.TempDir()
	d := driver.Dirs{Task: filepath.Join(dir, "web"), Shared: filepath.Join(dir, "alloc"),
		Logs: filepath.Join(dir, "alloc", "logs"), Private: filepath.Join(dir, "private")}
	for _, name := range []string{d.Task + "/local", d.Logs} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &driver.Task{Alloc: "a1", Name: "web", Dirs: d, Config: config, Env: map[string]string{"A": "b"},
		Resources: driver.Resources{CPU: 500, MemoryMB: 64, MemoryMaxMB: 128, TotalCPU: 4000},
		Ports:     []driver.Port{{Label: "db", HostIP: "127.0.0.1", Value: 20001, To: 6379}}}
}

// TestContainer: a container from its image to its end, with all that was asked of the Engine.
func TestContainer(t *testing.T) {
	f, d := fake(t)
	if p := d.Fingerprint(t.Context()); !p.Healthy || p.Attributes["driver.docker.version"] != "24.0.7" {
		t.Error(p)
	}
	task := task(t, map[string]any{"image": "redis:7", "ports": []any{"db"}, "args": []any{"--x"},
		"labels": []any{map[string]any{"team": "a"}}, "volumes": []any{"local/conf:/conf:ro"},
		"ulimit": map[string]any{"nofile": "10:20"}, "auth": []any{map[string]any{"username": "u", "password": "p"}}})
	r, err := d.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	host := f.created["HostConfig"].(map[string]any)
	for what, want := range map[string]any{"Memory": 128.0 * 1048576, "MemoryReservation": 64.0 * 1048576,
		"CpuShares": 500.0,
		"PortBindings": map[string]any{"6379/tcp": []any{map[string]any{"HostIp": "127.0.0.1", "HostPort": "20001"}},
			"6379/udp": []any{map[string]any{"HostIp": "127.0.0.1", "HostPort": "20001"}}},
		"Ulimits": []any{map[string]any{"Name": "nofile", "Soft": 10.0, "Hard": 20.0}}} {
		if got := host[what]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if binds := fmt.Sprint(host["Binds"]); !strings.Contains(binds, task.Dirs.Task+"/local/conf:/conf:ro") ||
		!strings.Contains(binds, task.Dirs.Shared+":/alloc") {
		t.Error(binds)
	}
	first := r.(*running) // its agent ends, and the next one goes on
	first.end()
	first.copied.Wait()
	again, err := d.Recover(t.Context(), task, r.State())
	if err != nil {
		t.Fatal(err)
	}
	if u, err := again.Usage(); err != nil || u.CPUPercent != 40 || u.MemoryBytes != 4096 || u.PIDs != 3 {
		t.Error(u, err)
	}
	var out bytes.Buffer
	code, err := again.Exec(t.Context(), driver.Exec{Command: []string{"x"}, Stdin: strings.NewReader("in\n"),
		Stdout: &out})
	if code != 3 || err != nil || out.String() != "got in\n" {
		t.Error(code, err, out.String())
	}
	if err := again.Stop(t.Context(), "SIGTERM", 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	e, err := again.Wait(t.Context())
	if err != nil || e.Code != 137 || e.Signal != 9 || !e.OOM {
		t.Error(e, err)
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
	if err := again.Remove(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"web.stdout.0": "hello\nworld\n", "web.stderr.0": "oops\n"} {
		text, err := os.ReadFile(filepath.Join(task.Dirs.Logs, name))
		if err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if note, _ := os.ReadFile(filepath.Join(task.Dirs.Private, "logs-until")); string(note) != "1767225601.000000001" {
		t.Errorf("the output is copied until %q", note)
	}
}

// TestGroupNetwork: a container holds the network of an allocation, and its tasks join that, with the files that the
// Engine does not make for those who join.
func TestGroupNetwork(t *testing.T) {
	f, d := fake(t)
	for range 2 {
		path, name, err := d.Hold(t.Context(), "a1", "web-0")
		if err != nil || path != "/proc/4711/ns/net" || name != "nomad_init_a1" {
			t.Fatal(path, name, err)
		}
	}
	host := f.created["HostConfig"].(map[string]any)
	if f.created["Image"] != DefaultInfra || f.created["Hostname"] != "web-0" || host["NetworkMode"] != "none" {
		t.Error(f.created)
	}
	if n := strings.Count(fmt.Sprint(f.asked), "/containers/create"); n != 1 {
		t.Errorf("%d containers were made", n)
	}
	task := task(t, map[string]any{"image": "redis:7", "ports": []any{"db"}, "hostname": "other",
		"extra_hosts": []any{"db:10.0.0.9"}, "dns_servers": []any{"10.0.0.53"}})
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	task.Network = driver.Network{Mode: "bridge", Path: "/run/netns/a1", Container: "nomad_init_a1", Hosts: hosts,
		Resolv: "/nowhere"}
	out, err := d.create(task, configOf(t, task))
	if err != nil {
		t.Fatal(err)
	}
	h := &out.HostConfig
	if h.NetworkMode != "container:nomad_init_a1" || out.Hostname != "" || len(h.PortBindings)+len(h.Dns)+
		len(h.ExtraHosts) != 0 {
		t.Errorf("%+v", out)
	}
	for name, want := range map[string]string{"hosts": "127.0.0.1 localhost\n10.0.0.9 db\n",
		"resolv.conf": "nameserver 10.0.0.53\n"} {
		file := filepath.Join(task.Dirs.Private, name)
		text, err := os.ReadFile(file)
		if err != nil || string(text) != want || !slices.Contains(h.Binds, file+":/etc/"+name) {
			t.Errorf("%s: %q, %v in %q", name, text, err, h.Binds)
		}
	}
	task.Network.Container = ""
	if _, err := d.create(task, configOf(t, task)); !errkind.Is(err, errkind.Unavailable) {
		t.Error("a network without a container is joined:", err)
	}
	for range 2 {
		if err := d.Release(t.Context(), "a1"); err != nil || f.holds {
			t.Error(err)
		}
	}
}

func configOf(t *testing.T, task *driver.Task) *config {
	t.Helper()
	c := &config{}
	if err := driver.Decode(task.Config, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRefuses: what reaches the host needs the operator's word.
func TestRefuses(t *testing.T) {
	_, d := fake(t)
	for name, c := range map[string]struct {
		config map[string]any
		want   errkind.Kind
	}{
		"privileged": {map[string]any{"privileged": true}, errkind.Denied},
		"pid":        {map[string]any{"pid_mode": "host"}, errkind.Denied},
		"cap":        {map[string]any{"cap_add": []any{"SYS_ADMIN"}}, errkind.Denied},
		"seccomp":    {map[string]any{"security_opt": []any{"seccomp=unconfined"}}, errkind.Denied},
		"host":       {map[string]any{"volumes": []any{"/etc:/x"}}, errkind.Denied},
		"dots":       {map[string]any{"volumes": []any{"../../x:/x"}}, errkind.Denied},
		"link":       {map[string]any{"volumes": []any{"local/link:/x"}}, errkind.Denied},
		"mount":      {map[string]any{"mount": []any{map[string]any{"source": "/", "target": "/x"}}}, errkind.Denied},
		"port":       {map[string]any{"ports": []any{"none"}}, errkind.Invalid},
		"unknown":    {map[string]any{"colour": "red"}, errkind.Invalid},
		"image":      {map[string]any{"image": "evil:1"}, errkind.Unavailable},
	} {
		if c.config["image"] == nil {
			c.config["image"] = "redis:7"
		}
		task := task(t, c.config)
		if err := os.Symlink("/etc", filepath.Join(task.Dirs.Task, "local", "link")); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Start(t.Context(), task); !errkind.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRealEngine runs a container where there is an Engine with the image busybox.
func TestRealEngine(t *testing.T) {
	d, err := New(Name, "unix:///var/run/docker.sock", false)
	if err != nil {
		t.Fatal(err)
	}
	if f := d.Fingerprint(t.Context()); !f.Healthy {
		loud.Skip(t, "a container of a real Docker Engine: there is none")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	task := task(t, map[string]any{"image": "busybox:1", "command": "sh", "args": []any{"-c", "echo $A; exit 7"}})
	r, err := d.Start(ctx, task)
	if err != nil {
		loud.Skip(t, "a container of a real Docker Engine: %v", err)
	}
	e, err := r.Wait(ctx)
	text, _ := os.ReadFile(filepath.Join(task.Dirs.Logs, "web.stdout.0"))
	if err != nil || e.Code != 7 || string(text) != "b\n" {
		t.Errorf("%+v %v %q", e, err, text)
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
}

// FuzzDemux: whatever an Engine sends, reading ends.
func FuzzDemux(f *testing.F) {
	f.Add(append(frame(1, "a"), frame(2, "b")...))
	f.Fuzz(func(t *testing.T, text []byte) { _ = demux(bytes.NewReader(text), io.Discard, io.Discard) })
}
