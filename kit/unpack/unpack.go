// Package unpack writes what an archive holds into a folder: a tar, a gzipped tar, or a zip. Nothing of it is written
// outside of the folder, by links neither; how much may be written is bounded, and each file is durable when it ends.
package unpack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"corbel.dev/corbel/kit/errkind"
)

// Bounds of what an archive may hold.
type Bounds struct {
	Bytes int64
	Files int
}

// Archive writes what an archive of size bytes holds below dir. Errors: Invalid, the archive is wrong; TooLarge;
// Unavailable, it cannot be written now.
func Archive(ctx context.Context, archive *os.File, size int64, dir string, b Bounds) error {
	u := unpacking{ctx: ctx, bytesLeft: b.Bytes, filesLeft: b.Files}
	return u.unpack(archive, size, dir)
}

// unpacking is the unpacking of one archive and what is left of its limits.
type unpacking struct {
	ctx       context.Context
	root      *os.Root // refuses everything that leads out of it, by symbolic links too
	bytesLeft int64
	filesLeft int
}

// entry is a member of an archive.
type entry struct {
	name string
	mode fs.FileMode
	link string // where a symbolic link leads, or the name of what a hard link is
	hard bool
	body io.Reader
}

// unpack writes what an archive holds below dir.
func (u *unpacking) unpack(archive *os.File, size int64, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	defer root.Close()
	u.root = root
	var head [512]byte
	n, err := archive.ReadAt(head[:], 0)
	if err != nil && err != io.EOF {
		return errkind.E(errkind.Unavailable, "the archive", err)
	}
	whole := io.NewSectionReader(archive, 0, size)
	switch {
	case bytes.HasPrefix(head[:n], []byte("PK\x03\x04")), bytes.HasPrefix(head[:n], []byte("PK\x05\x06")):
		return u.zip(whole)
	case bytes.HasPrefix(head[:n], []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(whole)
		if err != nil {
			return errkind.E(errkind.Invalid, "the archive", err)
		}
		return u.tar(plain)
	case n == len(head) && string(head[257:262]) == "ustar":
		return u.tar(whole)
	}
	return errkind.Errorf(errkind.Invalid, "the archive is neither a tar, nor a gzipped tar, nor a zip")
}

func (u *unpacking) tar(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return errkind.E(errkind.Invalid, "the archive", err)
		}
		e := entry{name: h.Name, mode: fs.FileMode(h.Mode).Perm(), link: h.Linkname, body: t}
		switch h.Typeflag {
		case tar.TypeReg:
		case tar.TypeDir:
			e.mode |= fs.ModeDir
		case tar.TypeSymlink:
			e.mode |= fs.ModeSymlink
		case tar.TypeLink:
			e.hard = true
		case tar.TypeXGlobalHeader:
			continue
		default:
			return errkind.Errorf(errkind.Invalid, "the archive holds %q, which is neither a file, nor a folder, nor a link",
				h.Name)
		}
		if err := u.add(e); err != nil {
			return err
		}
	}
}

func (u *unpacking) zip(r *io.SectionReader) error {
	z, err := zip.NewReader(r, r.Size())
	if err != nil {
		return errkind.E(errkind.Invalid, "the archive", err)
	}
	for _, f := range z.File {
		if err := u.zipped(f); err != nil {
			return err
		}
	}
	return nil
}

// maxLink bounds the path that a symbolic link of a zip leads to.
const maxLink = 4096

func (u *unpacking) zipped(f *zip.File) error {
	e := entry{name: f.Name, mode: f.Mode() & (fs.ModePerm | fs.ModeDir | fs.ModeSymlink)}
	if f.Mode()&fs.ModeType&^(fs.ModeDir|fs.ModeSymlink) != 0 {
		return errkind.Errorf(errkind.Invalid, "the archive holds %q, which is neither a file, nor a folder, nor a link",
			f.Name)
	}
	body, err := f.Open()
	if err != nil {
		return errkind.E(errkind.Invalid, "the archive", err)
	}
	defer body.Close()
	e.body = body
	if e.mode&fs.ModeSymlink != 0 {
		target, err := io.ReadAll(io.LimitReader(body, maxLink))
		if err != nil {
			return errkind.E(errkind.Invalid, "the archive", err)
		}
		e.link = string(target)
	}
	return u.add(e)
}

// add writes one member.
func (u *unpacking) add(e entry) error {
	if u.ctx.Err() != nil {
		return errkind.E(errkind.Unavailable, "unpacking", u.ctx.Err())
	}
	name := path.Clean(strings.ReplaceAll(e.name, `\`, "/"))
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return errkind.Errorf(errkind.Invalid, "the archive holds %q, which is outside of its folder", e.name)
	}
	if u.filesLeft--; u.filesLeft < 0 {
		return errkind.Errorf(errkind.TooLarge, "the archive holds too many files")
	}
	if e.mode.IsDir() {
		return u.wrote(e.name, u.root.MkdirAll(name, 0o755))
	}
	if dir := path.Dir(name); dir != "." {
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return u.wrote(e.name, err)
		}
	}
	if _, err := u.root.Lstat(name); err == nil { // an archive may hold a file twice: the later one counts
		if err := u.root.Remove(name); err != nil {
			return u.wrote(e.name, err)
		}
	}
	switch {
	case e.mode&fs.ModeSymlink != 0:
		if !filepath.IsLocal(path.Join(path.Dir(name), e.link)) || path.IsAbs(e.link) {
			return errkind.Errorf(errkind.Invalid, "the archive's link %q leads outside of its folder, to %q", e.name, e.link)
		}
		return u.wrote(e.name, u.root.Symlink(e.link, name))
	case e.hard:
		target := path.Clean(e.link)
		if !filepath.IsLocal(target) {
			return errkind.Errorf(errkind.Invalid, "the archive's link %q leads outside of its folder, to %q", e.name, e.link)
		}
		return u.wrote(e.name, u.root.Link(target, name))
	}
	return u.file(name, e)
}

// file writes a file and makes its content durable.
func (u *unpacking) file(name string, e entry) error {
	out, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return u.wrote(e.name, err)
	}
	defer out.Close()
	n, err := io.Copy(out, io.LimitReader(e.body, u.bytesLeft+1))
	if err != nil {
		var outside *fs.PathError // of the disk; what reads has other errors
		if errors.As(err, &outside) {
			return errkind.E(errkind.Unavailable, "cannot be kept", err)
		}
		return errkind.E(errkind.Invalid, "the archive: "+e.name, err)
	}
	if u.bytesLeft -= n; u.bytesLeft < 0 {
		return errkind.Errorf(errkind.TooLarge, "the archive holds too much")
	}
	// Whoever runs commands may read and run what its owner may; nobody but the owner may change it.
	mode := fs.FileMode(0o644)
	if e.mode&0o111 != 0 {
		mode = 0o755
	}
	if err := out.Chmod(mode); err != nil {
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	if err := out.Sync(); err != nil {
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	return nil
}

// wrote says whose fault an error is: paths that lead out or through files are the archive's.
func (u *unpacking) wrote(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission), isFull(err):
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	return errkind.E(errkind.Invalid, "the archive: "+name, err)
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO) ||
		errors.Is(err, syscall.EROFS)
}
