//go:build release

package main

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// The image is the same each time, is pushed to and pulled from a registry, and says how it is to be run.
func TestImage(t *testing.T) {
	var digests [2]v1.Hash
	var index v1.ImageIndex
	for i := range digests {
		r := made(t, "1.2.3", "x")
		r.targets = append(r.targets, target{"linux", "arm64"}, target{"darwin", "arm64"})
		if err := os.WriteFile(filepath.Join(r.out, r.targets[1].file(r.version)), []byte("arm"), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if index, err = r.index(); err != nil {
			t.Fatal(err)
		}
		if digests[i], err = index.Digest(); err != nil {
			t.Fatal(err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds: %s and %s", digests[0], digests[1])
	}
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://")+"/corbel:1.2.3", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		file, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := file.Config
		if file.Architecture != arch || c.User != "65532:65532" || c.Healthcheck == nil || len(c.Entrypoint) != 1 {
			t.Errorf("%s: %+v", arch, c)
		}
		root := unpack(t, img)
		for _, name := range []string{"usr/bin/corbel", "usr/bin/consul", "etc/ssl/certs/ca-certificates.crt", "tmp"} {
			if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// unpack lays out the file system of an image.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	r := mutate.Extract(img)
	defer r.Close()
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // upper layers come first
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			if err = os.MkdirAll(path, 0o755); err == nil {
				err = os.Chmod(path, h.FileInfo().Mode())
			}
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		default:
			var b []byte
			if b, err = io.ReadAll(files); err == nil {
				err = os.WriteFile(path, b, h.FileInfo().Mode().Perm())
			}
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Lchown(path, h.Uid, h.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestImageRuns runs the real binary in the unpacked file system, as the image's user, with nothing to write to but
// its data: give the binary in CORBEL_BINARY.
func TestImageRuns(t *testing.T) {
	binary := os.Getenv("CORBEL_BINARY")
	if binary == "" || os.Getuid() != 0 {
		skip(t, "CORBEL_BINARY (built with CGO_ENABLED=0) and root are needed")
	}
	r := made(t, "1.2.3", "x")
	b, err := os.ReadFile(binary)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.out, r.targets[0].file(r.version)), b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	img, err := r.imageOf(r.targets[0])
	if err != nil {
		t.Fatal(err)
	}
	root := unpack(t, img)
	// A mount namespace of its own, in which the root is read-only but for /var/lib/corbel; no network but loopback.
	script := `mount --bind "$1" "$1" && mount --bind "$1/var/lib/corbel" "$1/var/lib/corbel" &&
mount -o remount,bind,ro "$1" && ip link set lo up 2>/dev/null
run="chroot --userspec=65532:65532 $1"
$run /usr/bin/corbel dev --data-dir /var/lib/corbel --log-level error >/dev/null & pid=$!
for i in $(seq 1 100); do
	$run /usr/bin/corbel info --ready >/dev/null 2>&1 && ready=1 && break
	sleep 0.2
done
$run /usr/bin/corbel kv put a b && $run /usr/bin/consul kv get a
kill $pid; wait $pid
[ -n "$ready" ] || echo NEVER READY`
	out, err := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", script, "sh", root).CombinedOutput()
	if err != nil || strings.Contains(string(out), "NEVER READY") || !strings.Contains(string(out), "\nb\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
