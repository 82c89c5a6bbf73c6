package asset

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/unpack"
	"corbel.dev/corbel/monitor"
)

type member struct {
	name, body, link string
	mode             int64
	typ              byte
}

func tarOf(t testing.TB, list ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range list {
		if m.typ == 0 {
			m.typ = tar.TypeReg
		}
		h := &tar.Header{Name: m.name, Mode: m.mode, Size: int64(len(m.body)), Linkname: m.link, Typeflag: m.typ}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipOf(t testing.TB, list ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range list {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(fs.FileMode(m.mode))
		if m.link != "" {
			h.SetMode(fs.ModeSymlink | 0o777)
			m.body = m.link
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(m.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sumOf(b []byte) string {
	s := sha512.Sum512(b)
	return hex.EncodeToString(s[:])
}

// serve gives archives by path, and counts how often.
func serve(t *testing.T, archives map[string][]byte) (url string, served *atomic.Int64) {
	t.Helper()
	served = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		b, ok := archives[r.URL.Path]
		if !ok || r.URL.Path == "/secret" && r.Header.Get("Authorization") != "Bearer x" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s.URL, served
}

func fetcher(t *testing.T, change func(*Config)) (*Fetcher, string) {
	t.Helper()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "cache")}
	if change != nil {
		change(&cfg)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, cfg.Dir
}

func assetOf(url string, b []byte) *monitor.Asset {
	return &monitor.Asset{Meta: monitor.Meta{Name: "tools/check", Namespace: "default"}, URL: url, SHA512: sumOf(b)}
}

var linux = &monitor.Entity{Meta: monitor.Meta{Name: "e", Labels: map[string]string{"region": "us"}},
	System: monitor.System{OS: "linux", Arch: "amd64"}}

var good = []member{
	{name: "bin/", typ: tar.TypeDir, mode: 0o700}, {name: "bin/check", body: "#!/bin/sh\necho ok\n", mode: 0o4755},
	{name: "lib/a/b.so", body: "b", mode: 0o600}, {name: "./README", body: "one", mode: 0o644},
	{name: "README", body: "two", mode: 0o644},
	{name: "bin/other", link: "check", typ: tar.TypeSymlink},
	{name: "include/h", link: "../lib/a/b.so", typ: tar.TypeSymlink},
}

func TestFetch(t *testing.T) {
	zipped := slices.DeleteFunc(slices.Clone(good), func(m member) bool { return m.body == "one" })
	archives := map[string][]byte{"/tar": tarOf(t, good...),
		"/gz":  gzipped(t, tarOf(t, append(good, member{name: "hard", link: "bin/check", typ: tar.TypeLink})...)),
		"/zip": zipOf(t, zipped...)}
	url, served := serve(t, archives)
	f, dir := fetcher(t, nil)
	for path, b := range archives {
		before := served.Load()
		for range 3 {
			u, err := f.Fetch(t.Context(), assetOf(url+path, b), linux)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if u.Dir != filepath.Join(dir, sumOf(b)) || u.SHA512 != sumOf(b) || u.Name != "tools/check" {
				t.Errorf("%s: %+v", path, u)
			}
			for name, want := range map[string]fs.FileMode{"bin": fs.ModeDir | 0o755, "bin/check": 0o755, "lib/a/b.so": 0o644,
				"README": 0o644, "bin/other": 0o755, "include/h": 0o644} {
				info, err := os.Stat(filepath.Join(u.Dir, name))
				if err != nil || info.Mode() != want {
					t.Errorf("%s: %s: %v, %v", path, name, info, err)
				}
			}
			if text, _ := os.ReadFile(filepath.Join(u.Dir, "README")); string(text) != "two" {
				t.Errorf("%s: README %q", path, text)
			}
		}
		if n := served.Load() - before; n != 1 {
			t.Errorf("%s: downloaded %d times", path, n)
		}
	}
	again, err := New(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	before := served.Load()
	if _, err := again.Fetch(t.Context(), assetOf(url+"/tar", archives["/tar"]), linux); err != nil ||
		served.Load() != before {
		t.Error("fetched again after a restart", err)
	}
}

func TestRefused(t *testing.T) {
	large := strings.Repeat("x", 1<<16)
	var many []member
	for i := range 40 {
		many = append(many, member{name: fmt.Sprint(i)})
	}
	for name, c := range map[string]struct {
		archive []byte
		kind    errkind.Kind
		says    string
	}{
		"up":            {tarOf(t, member{name: "../evil", body: "x"}), errkind.Invalid, "outside"},
		"up within":     {tarOf(t, member{name: "a/../../evil", body: "x"}), errkind.Invalid, "outside"},
		"absolute":      {tarOf(t, member{name: "/evil", body: "x"}), errkind.Invalid, "outside"},
		"up in zip":     {zipOf(t, member{name: "../evil", body: "x"}), errkind.Invalid, "outside"},
		"backslashes":   {zipOf(t, member{name: `..\evil`, body: "x"}), errkind.Invalid, "outside"},
		"link out":      {tarOf(t, member{name: "l", link: "../..", typ: tar.TypeSymlink}), errkind.Invalid, "outside"},
		"link to root":  {tarOf(t, member{name: "l", link: "/", typ: tar.TypeSymlink}), errkind.Invalid, "outside"},
		"link in zip":   {zipOf(t, member{name: "l", link: "../x"}), errkind.Invalid, "outside"},
		"hard link out": {tarOf(t, member{name: "l", link: "../../x", typ: tar.TypeLink}), errkind.Invalid, "outside"},
		"through a link": {tarOf(t, member{name: "a/b/l", link: "../..", typ: tar.TypeSymlink},
			member{name: "a/b/l/../../evil", body: "x"}, member{name: "a/b/l/../evil", body: "x"}), 0, ""},
		"device":         {tarOf(t, member{name: "d", typ: tar.TypeChar}), errkind.Invalid, "neither"},
		"no archive":     {[]byte(large), errkind.Invalid, "neither"},
		"nothing":        {nil, errkind.Invalid, "neither"},
		"torn":           {gzipped(t, tarOf(t, good...))[:100], errkind.Invalid, "archive"},
		"large":          {tarOf(t, member{name: "a", body: large}), errkind.TooLarge, "larger"},
		"bomb":           {gzipped(t, tarOf(t, member{name: "a", body: large})), errkind.TooLarge, "too much"},
		"zip bomb":       {zipOf(t, member{name: "a", body: large}), errkind.TooLarge, "too much"},
		"many":           {tarOf(t, many...), errkind.TooLarge, "many"},
		"file as folder": {tarOf(t, member{name: "a", body: "x"}, member{name: "a/b", body: "x"}), errkind.Invalid, "a/b"},
	} {
		url, _ := serve(t, map[string][]byte{"/a": c.archive})
		f, dir := fetcher(t, func(c *Config) { c.MaxArchiveBytes, c.MaxUnpackedBytes, c.MaxFiles = 1<<16, 1<<15, 30 })
		u, err := f.Fetch(t.Context(), assetOf(url+"/a", c.archive), linux)
		entries, _ := os.ReadDir(dir)
		if c.says == "" { // whatever becomes of it, nothing is outside
			if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
				t.Errorf("%s: wrote outside", name)
			}
			continue
		}
		if u != nil || errkind.Of(err) != c.kind || !strings.Contains(err.Error(), c.says) || len(entries) != 0 {
			t.Errorf("%s: %v (%v), %d entries left", name, err, errkind.Of(err), len(entries))
		}
	}
}

func TestDefinitions(t *testing.T) {
	b := tarOf(t, good...)
	url, served := serve(t, map[string][]byte{"/a": b, "/secret": b, "/other": tarOf(t, good[:2]...)})
	f, _ := fetcher(t, nil)
	build := func(path string, filters ...string) *monitor.AssetBuild {
		return &monitor.AssetBuild{URL: url + path, SHA512: sumOf(b), Filters: filters}
	}
	a := &monitor.Asset{Meta: monitor.Meta{Name: "a"}, Builds: []*monitor.AssetBuild{
		build("/none", "entity.system.os == 'windows'"), build("/none", "entity.system.os == 'linux'",
			"entity.labels.region == 'eu'"),
		build("/none", "entity.none.here"), build("/none", "a syntax error"),
		build("/a", "entity.system.os == 'linux'", "entity.system.arch == 'amd64'"), build("/none"),
	}}
	if u, err := f.Fetch(t.Context(), a, linux); err != nil || u == nil || served.Load() != 1 {
		t.Errorf("the fitting build: %v, %v, %d downloads", u, err, served.Load())
	}
	a.Builds = a.Builds[:4]
	if u, err := f.Fetch(t.Context(), a, linux); err != nil || u != nil {
		t.Errorf("no build fits: %v, %v", u, err)
	}
	f, _ = fetcher(t, nil)
	a = &monitor.Asset{Meta: monitor.Meta{Name: "a"}, Headers: map[string]string{"Authorization": "Bearer y"},
		Builds: []*monitor.AssetBuild{build("/secret")}}
	if _, err := f.Fetch(t.Context(), a, linux); errkind.Of(err) != errkind.Unavailable {
		t.Errorf("without its header: %v", err)
	}
	a.Builds[0].Headers = map[string]string{"Authorization": "Bearer x"}
	if _, err := f.Fetch(t.Context(), a, linux); err != nil {
		t.Errorf("with its header: %v", err)
	}
	f, _ = fetcher(t, nil)
	for path, says := range map[string]string{url + "/other": "does not match", "ftp://x/y": "only http",
		"file:///etc/passwd": "only http", url + "/missing": "404", "http://127.0.0.1:1/": "refused"} {
		if _, err := f.Fetch(t.Context(), assetOf(path, b), linux); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "tools/check") {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, sum := range []string{"", "../" + sumOf(b)[3:], sumOf(b)[1:], sumOf(b) + "0"} {
		if _, err := f.Fetch(t.Context(), &monitor.Asset{URL: url + "/a", SHA512: sum},
			linux); errkind.Of(err) != errkind.Invalid {
			t.Errorf("sha512 %q: %v", sum, err)
		}
	}
	upper := assetOf(url+"/a", b)
	upper.SHA512 = strings.ToUpper(upper.SHA512)
	if u, err := f.Fetch(t.Context(), upper, linux); err != nil || u.SHA512 != sumOf(b) {
		t.Errorf("upper case: %v", err)
	}
}

func TestTogether(t *testing.T) {
	b := tarOf(t, good...)
	url, served := serve(t, map[string][]byte{"/a": b})
	f, _ := fetcher(t, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if u, err := f.Fetch(context.Background(), assetOf(url+"/a", b), linux); err != nil || u == nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if served.Load() != 1 || len(f.busy) != 0 {
		t.Errorf("%d downloads; %d turns are left", served.Load(), len(f.busy))
	}
}

// Somebody who waits for another's download waits no longer than he wants to, and one that fails is tried again by
// the next.
func TestDeadlines(t *testing.T) {
	b := tarOf(t, good...)
	release, arrived := make(chan struct{}), make(chan struct{}, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
			_, _ = w.Write(b)
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	f, _ := fetcher(t, nil)
	first, cancel := context.WithCancel(t.Context())
	results := make(chan error, 2)
	go func() { _, err := f.Fetch(first, assetOf(s.URL, b), linux); results <- err }()
	<-arrived
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if _, err := f.Fetch(short, assetOf(s.URL, b), linux); errkind.Of(err) != errkind.Unavailable {
		t.Errorf("waiting: %v", err)
	}
	go func() { _, err := f.Fetch(t.Context(), assetOf(s.URL, b), linux); results <- err }()
	cancel()
	if err := <-results; errkind.Of(err) != errkind.Unavailable {
		t.Errorf("cancelled: %v", err)
	}
	<-arrived
	close(release)
	if err := <-results; err != nil {
		t.Errorf("the next one: %v", err)
	}
	f, _ = fetcher(t, func(c *Config) { c.PerSecond, c.Burst = 1e-6, 1 })
	if _, err := f.Fetch(t.Context(), assetOf(s.URL, b), linux); err != nil {
		t.Error(err)
	}
	late, stop2 := context.WithTimeout(t.Context(), time.Minute)
	defer stop2()
	other := assetOf(s.URL, append(b, 0))
	if _, err := f.Fetch(late, other, linux); errkind.Of(err) != errkind.Unavailable ||
		!strings.Contains(err.Error(), "turn") {
		t.Errorf("beyond the rate: %v", err)
	}
}

func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{unfinished + "1/bin", "keep/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, unfinished+"2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || entries[0].Name() != "keep" {
		t.Errorf("%v", entries)
	}
	if _, err := New(Config{}); errkind.Of(err) != errkind.Invalid {
		t.Error(err)
	}
}

func TestEnv(t *testing.T) {
	base := []string{"PATH=/old", "HOME=/", "PATH=/bin:/usr/bin", "CPATH="}
	got := Env(base, []*Unpacked{{Name: "a", Dir: "/c/1"}, {Name: "b/c-d.e:f", Dir: "/c/2"}})
	want := append(slices.Clone(base), "PATH=/c/1/bin:/c/2/bin:/bin:/usr/bin", "LD_LIBRARY_PATH=/c/1/lib:/c/2/lib",
		"CPATH=/c/1/include:/c/2/include", "A_PATH=/c/1", "B_C_D_E_F_PATH=/c/2")
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := Env(base, nil); !slices.Equal(got, base) {
		t.Errorf("%q", got)
	}
}

// FuzzUnpack: whatever an archive says, nothing is written outside of its folder, and no more than is allowed.
func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, good...))
	f.Add(gzipped(f, tarOf(f, good...)))
	f.Add(zipOf(f, good[1], good[2]))
	f.Add(tarOf(f, member{name: "l", link: "a", typ: tar.TypeSymlink}, member{name: "l/../../x", body: "x"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		archive, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		if _, err := archive.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = unpack.Archive(t.Context(), archive, int64(len(b)), dir, unpack.Bounds{Bytes: 1 << 16, Files: 50})
		entries, err := os.ReadDir(parent)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		var size int64
		_ = filepath.Walk(dir, func(_ string, info fs.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
			return nil
		})
		if size > 51*(1<<16) {
			t.Fatalf("%d bytes", size)
		}
	})
}
