//go:build release

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageUser is whom the process in the image is: nobody's name, so that it can be anybody's data.
const imageUser = 65532

// authorities are where Debian and others keep the certificates of public authorities.
const authorities = "/etc/ssl/certs/ca-certificates.crt"

// image writes the image of all architectures as an OCI layout.
func (r *release) image() error {
	index, err := r.index()
	if err != nil {
		return err
	}
	dir := filepath.Join(r.out, fmt.Sprintf("corbel_%s_image", r.version))
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	_, err = layout.Write(dir, index)
	return err
}

// index is the image of all architectures that there are binaries for.
func (r *release) index() (v1.ImageIndex, error) {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range r.targets {
		if t.system != "linux" {
			continue
		}
		img, err := r.imageOf(t)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: t.arch}}})
	}
	return index, nil
}

// imageOf is the image of one architecture: nothing but the binary, its names, and what it reads.
func (r *release) imageOf(t target) (v1.Image, error) {
	base, err := r.baseLayer()
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(filepath.Join(r.out, t.file(r.version)))
	if err != nil {
		return nil, err
	}
	own := &tree{date: r.date}
	own.file("usr/bin/corbel", 0o755, 0, binary)
	for i := range packs {
		for _, link := range packs[i].links {
			own.link("usr/bin/"+link, "corbel")
		}
	}
	layers := make([]v1.Layer, 2)
	for i, b := range [][]byte{base, own.bytes()} {
		layers[i], err = tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
			tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", t.arch, v1.Time{Time: r.date}
	for i := range file.History {
		file.History[i].Created = v1.Time{Time: r.date}
	}
	file.Config = v1.Config{User: fmt.Sprintf("%d:%d", imageUser, imageUser), WorkingDir: "/var/lib/corbel",
		Entrypoint: []string{"/usr/bin/corbel"}, Cmd: []string{"agent", "--config-dir", "/etc/corbel.d", "--data-dir",
			"/var/lib/corbel"},
		Env: []string{"PATH=/usr/bin", "HOME=/var/lib/corbel", "SSL_CERT_FILE=/" + authorities[1:]},
		// The agent of this container says whether clients may come.
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/corbel", "info", "--ready"}, Interval: 10 * time.Second,
			Timeout: 5 * time.Second, StartPeriod: time.Minute, Retries: 3},
		Volumes:      map[string]struct{}{"/var/lib/corbel": {}},
		ExposedPorts: map[string]struct{}{"8500/tcp": {}, "8300/tcp": {}, "8301/tcp": {}, "8301/udp": {}, "8600/udp": {}},
		Labels: map[string]string{"org.opencontainers.image.title": "corbel",
			"org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0"}}
	return mutate.ConfigFile(img, file)
}

// baseLayer has what is not the binary: users, folders, and whom to trust.
func (r *release) baseLayer() ([]byte, error) {
	trusted, err := os.ReadFile(authorities)
	if err != nil {
		return nil, fmt.Errorf("the authorities that the image trusts: %w; install ca-certificates", err)
	}
	base := &tree{date: r.date}
	for _, dir := range []struct {
		name string
		mode int64
		user int
	}{{"etc", 0o755, 0}, {"etc/corbel.d", 0o755, 0}, {"etc/ssl", 0o755, 0}, {"etc/ssl/certs", 0o755, 0}, {"tmp", 0o1777, 0},
		{"usr", 0o755, 0}, {"usr/bin", 0o755, 0}, {"var", 0o755, 0}, {"var/lib", 0o755, 0},
		{"var/lib/corbel", 0o700, imageUser}} {
		base.dir(dir.name, dir.mode, dir.user)
	}
	base.file("etc/passwd", 0o644, 0, fmt.Appendf(nil,
		"root:x:0:0:root:/:/sbin/nologin\ncorbel:x:%d:%d:corbel:/var/lib/corbel:/sbin/nologin\n", imageUser, imageUser))
	base.file("etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\ncorbel:x:%d:\n", imageUser))
	base.file("etc/nsswitch.conf", 0o644, 0, []byte("hosts: files dns\n"))
	base.file(authorities[1:], 0o644, 0, trusted)
	return base.bytes(), nil
}

// tree is a file system in the making. What it has is in memory: writing cannot fail.
type tree struct {
	date time.Time
	b    bytes.Buffer
	w    *tar.Writer
}

func (t *tree) add(h *tar.Header, content []byte) {
	if t.w == nil {
		t.w = tar.NewWriter(&t.b)
	}
	h.ModTime, h.Format, h.Size = t.date, tar.FormatPAX, int64(len(content))
	if err := t.w.WriteHeader(h); err != nil {
		panic(err)
	}
	if _, err := t.w.Write(content); err != nil {
		panic(err)
	}
}

func (t *tree) dir(name string, mode int64, user int) {
	t.add(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: user, Gid: user}, nil)
}

func (t *tree) file(name string, mode int64, user int, content []byte) {
	t.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Uid: user, Gid: user}, content)
}

func (t *tree) link(name, to string) {
	t.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, nil)
}

func (t *tree) bytes() []byte {
	if err := t.w.Close(); err != nil {
		panic(err)
	}
	return t.b.Bytes()
}
