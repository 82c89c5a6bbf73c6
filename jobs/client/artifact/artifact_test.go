package artifact

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

type member struct {
	name, text, link string
	kind             byte
}

func tarball(list ...member) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, m := range list {
		if m.kind == 0 {
			m.kind = tar.TypeReg
		}
		_ = t.WriteHeader(&tar.Header{Name: m.name, Mode: 0o4755, Size: int64(len(m.text)), Typeflag: m.kind,
			Linkname: m.link})
		_, _ = t.Write([]byte(m.text))
	}
	_ = t.Close()
	_ = z.Close()
	return b.Bytes()
}

func zipped(name, text string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, _ := z.Create(name)
	_, _ = w.Write([]byte(text))
	_ = z.Close()
	return b.Bytes()
}

func many() (list []member) {
	for i := range 50 {
		list = append(list, member{name: string(rune('a' + i))})
	}
	return list
}

// TestGet: what arrives where, and what is refused with nothing written outside.
func TestGet(t *testing.T) {
	good := tarball(member{name: "./bin/tool", text: "#!"}, member{name: "lib", kind: tar.TypeDir},
		member{name: "lib/l", link: "../bin/tool", kind: tar.TypeSymlink})
	files := map[string][]byte{"/f.txt": []byte("hello"), "/good.tar.gz": good,
		"/z.zip":       zipped("a/b", "zip"),
		"/dots.tar.gz": tarball(member{name: "../../out", text: "x"}), "/zdots.zip": zipped("../../out", "x"),
		"/abs.tar.gz": tarball(member{name: "/etc/x", text: "x"}),
		"/link.tar.gz": tarball(member{name: "l", link: "../../..", kind: tar.TypeSymlink},
			member{name: "l/out", text: "x"}),
		"/abslink.tar.gz": tarball(member{name: "l", link: "/tmp", kind: tar.TypeSymlink}),
		"/dev.tar.gz":     tarball(member{name: "d", kind: tar.TypeChar}), "/bomb.tar.gz": tarball(member{name: "b",
			text: string(make([]byte, 5000))}), "/bad.tar.gz": []byte("no archive"),
		"/many.tar.gz": tarball(many()...)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := files[r.URL.Path]; ok && r.URL.RawQuery == "" && r.Header.Get("X-A") != "deny" {
			_, _ = w.Write(text)
			return
		}
		http.NotFound(w, r)
	}))
	defer srv.Close()
	sum := sha256.Sum256([]byte("hello"))
	hexsum := hex.EncodeToString(sum[:])
	for _, c := range []struct {
		source, dest, mode string
		want               errkind.Kind
		file, text         string
	}{
		{"/f.txt", "", "", 0, "local/f.txt", "hello"},
		{"/f.txt?checksum=sha256:" + hexsum, "local/x", "", 0, "local/x/f.txt", "hello"},
		{"/f.txt?checksum=" + hexsum, "local/name", "file", 0, "local/name", "hello"},
		{"/f.txt?checksum=sha256:00", "", "", errkind.Corrupt, "", ""},
		{"/f.txt?checksum=crc:00", "", "", errkind.Invalid, "", ""},
		{"/f.txt", "../../out", "file", 0, "out", "hello"},
		{"/f.txt", "escape/out", "file", errkind.Denied, "", ""},
		{"/f.txt", "", "dir", errkind.Invalid, "", ""},
		{"/none", "", "", errkind.NotFound, "", ""},
		{"/good.tar.gz", "", "", 0, "local/lib/l", "#!"},
		{"/good.tar.gz?archive=false", "", "", 0, "local/good.tar.gz", string(good)},
		{"/z.zip", "", "", 0, "local/a/b", "zip"},
		{"/dots.tar.gz", "", "", errkind.Denied, "", ""}, {"/zdots.zip", "", "", errkind.Denied, "", ""},
		{"/abs.tar.gz", "", "", errkind.Denied, "", ""}, {"/link.tar.gz", "", "", errkind.Denied, "", ""},
		{"/abslink.tar.gz", "", "", errkind.Denied, "", ""}, {"/dev.tar.gz", "", "", errkind.Denied, "", ""},
		{"/bomb.tar.gz", "", "", errkind.TooLarge, "", ""}, {"/bad.tar.gz", "", "", errkind.Corrupt, "", ""},
		{"/many.tar.gz", "", "", errkind.TooLarge, "", ""},
	} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "alloc", "task")
		if err := os.MkdirAll(filepath.Join(dir, "local"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(parent, filepath.Join(dir, "escape")); err != nil {
			t.Fatal(err)
		}
		s := &Step{Limits: Limits{Bytes: 4000, Files: 20}}
		err := s.Get(t.Context(), dir, &source{text: srv.URL + c.source, dest: c.dest, mode: c.mode})
		if errkind.Of(err) != c.want && (err != nil || c.want != 0) {
			t.Errorf("%s: %v", c.source, err)
		}
		if c.want == 0 && err == nil {
			text, err := os.ReadFile(filepath.Join(dir, c.file))
			if err != nil || string(text) != c.text {
				t.Errorf("%s: %q, %v", c.source, text, err)
			}
			if info, err := os.Stat(filepath.Join(dir, c.file)); err == nil && info.Mode()&os.ModeSetuid != 0 {
				t.Errorf("%s: setuid", c.source)
			}
		}
		if list, _ := os.ReadDir(parent); len(list) != 1 {
			t.Errorf("%s: something is written outside: %v", c.source, list)
		}
	}
	for text, want := range map[string]errkind.Kind{"ftp://x/y": errkind.Invalid, "file:///etc/passwd": errkind.Denied,
		"git::ext::sh -c x": errkind.Invalid, "git::https://127.0.0.1:1/x?ref=-x": errkind.Invalid} {
		if err := (&Step{}).Get(t.Context(), t.TempDir(), &source{text: text}); !errkind.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzUnpack: whatever an archive says, nothing is written outside.
func FuzzUnpack(f *testing.F) {
	f.Add(tarball(member{name: "../x", text: "y"}), "tar.gz")
	f.Add(zipped("a", "b"), "zip")
	f.Fuzz(func(t *testing.T, text []byte, kind string) {
		if kindOf("", kind) == "" {
			return
		}
		parent := t.TempDir()
		dir := filepath.Join(parent, "a", "b")
		_ = os.MkdirAll(dir, 0o755)
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		name := filepath.Join(t.TempDir(), "in")
		_ = os.WriteFile(name, text, 0o600)
		in, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		_ = unpack(root, "local", in, kind, &Limits{Bytes: 1 << 16, Files: 20})
		if list, _ := os.ReadDir(parent); len(list) != 1 {
			t.Error("something is written outside")
		}
	})
}
