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

// quoted makes words of a shell.
func quoted(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(" '" + strings.ReplaceAll(w, "'", `'\''`) + "'")
	}
	return b.String()
}

// TestImageRuns runs the real binary in the unpacked file system as a runtime of containers does with --read-only and
// --tmpfs /tmp: the image's entry point, environment, folder and user, without any right, and its health check. Give
// the binary, built with CGO_ENABLED=0, in CORBEL_BINARY.
func TestImageRuns(t *testing.T) {
	binary := os.Getenv("CORBEL_BINARY")
	if binary == "" || os.Getuid() != 0 {
		skip(t, "CORBEL_BINARY (built with CGO_ENABLED=0) and root are needed")
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	r := madeOf(t, "1.2.3", program)
	img, err := r.imageOf(r.targets[0])
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := &file.Config
	user, group, _ := strings.Cut(c.User, ":")
	inside := "env -i" + quoted(c.Env) + " setpriv --no-new-privs unshare --root=\"$root\" --wd=" + c.WorkingDir +
		" --setgid=" + group + " --setuid=" + user + " --"
	if c.Healthcheck.Test[0] != "CMD" {
		t.Fatalf("the health check is %q", c.Healthcheck.Test)
	}
	health := inside + quoted(c.Healthcheck.Test[1:])
	start := inside + quoted(append(c.Entrypoint, "dev", "--data-dir", "/var/lib/corbel", "--log-level", "error"))
	// Its own mounts, processes, and a network of loopback alone; the volume is the only thing to write to beside /tmp.
	script := `root=$1
fail() { echo "FAILED: $*"; }
set -e
mkdir "$root/proc" "$root/dev"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$root/var/lib/corbel" "$root/var/lib/corbel"
mount -o remount,bind,ro "$root"
ip link set lo up
set +e
! touch "$root/etc/written" 2>/dev/null || fail the root can be written to
! ` + health + ` >/dev/null 2>&1 || fail healthy before it was started
` + start + ` & pid=$!
for n in $(seq 300); do
	` + health + ` >"$root.said" 2>&1 && ready=1 && break
	[ -e /proc/$pid/exe ] || break
	sleep 0.2
done
[ -n "$ready" ] || fail "never healthy: $(cat "$root.said")"
grep -E '^(Uid|Gid|Groups|CapEff|CapPrm|NoNewPrivs):' /proc/$pid/status
` + inside + ` /usr/bin/corbel kv put a b && ` + inside + ` /usr/bin/consul kv get a
kill $pid; wait $pid || fail "the end was $?"
! ` + health + ` >/dev/null 2>&1 || fail healthy after its end
[ -n "$(ls "$root/var/lib/corbel")" ] || fail nothing was kept`
	root := unpack(t, img)
	out, err := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh",
		root).CombinedOutput()
	if err != nil || strings.Contains(string(out), "FAILED") || !strings.Contains(string(out), "\nb\n") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, line := range []string{"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "Groups:\t",
		"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(out), line) {
			t.Errorf("%q is not in\n%s", line, out)
		}
	}
}
