package artifact

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/kit/errkind"
)

// kinds are the archives by the ends of their names.
var kinds = []struct{ suffix, kind string }{{".tar.gz", "tar.gz"}, {".tgz", "tar.gz"}, {".tar.bz2", "tar.bz2"},
	{".tbz2", "tar.bz2"}, {".tar", "tar"}, {".zip", "zip"}, {".gz", "gz"}, {".bz2", "bz2"}}

// kindOf is the kind of archive that a file is, by its name or as its source says; "" is none.
func kindOf(name, said string) string {
	for _, k := range kinds {
		if said != "" && "."+said == k.suffix || said == "" && strings.HasSuffix(name, k.suffix) {
			return k.kind
		}
	}
	return ""
}

// unpacker writes an archive's entries.
type unpacker struct {
	root  *os.Root
	dest  string
	left  int64
	files int
}

func unpack(root *os.Root, dest string, file *os.File, kind string, limits *Limits) error {
	u := &unpacker{root: root, dest: dest, left: limits.Bytes, files: limits.Files}
	if err := root.MkdirAll(dest, 0o755); err != nil {
		return escape(err)
	}
	if kind == "zip" {
		return u.zip(file)
	}
	var r io.Reader = bufio.NewReader(file)
	switch {
	case strings.HasSuffix(kind, "gz"):
		z, err := gzip.NewReader(r)
		if err != nil {
			return errkind.E(errkind.Corrupt, "unpack", err)
		}
		r = z
	case strings.HasSuffix(kind, "bz2"):
		r = bzip2.NewReader(r)
	}
	if !strings.HasPrefix(kind, "tar") {
		return u.file(strings.TrimSuffix(path.Base(file.Name()), "."+kind), r, 0o644)
	}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errkind.E(errkind.Corrupt, "unpack", err)
		}
		mode := fs.FileMode(h.Mode) & 0o777 // neither setuid nor sticky
		switch h.Typeflag {
		case tar.TypeReg:
			err = u.file(h.Name, t, mode)
		case tar.TypeDir:
			err = u.dir(h.Name)
		case tar.TypeSymlink:
			err = u.link(h.Name, h.Linkname)
		case tar.TypeXGlobalHeader:
		default:
			err = errkind.Errorf(errkind.Denied, "the archive has %q, which is neither file, directory nor link", h.Name)
		}
		if err != nil {
			return err
		}
	}
}

func (u *unpacker) zip(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(file, info.Size())
	if err != nil {
		return errkind.E(errkind.Corrupt, "unpack", err)
	}
	for _, e := range z.File {
		if err := u.zipEntry(e); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) zipEntry(e *zip.File) error {
	mode := e.Mode()
	if mode.IsDir() {
		return u.dir(e.Name)
	}
	r, err := e.Open()
	if err != nil {
		return errkind.E(errkind.Corrupt, "unpack", err)
	}
	defer r.Close()
	switch {
	case mode.IsRegular():
		return u.file(e.Name, r, mode.Perm())
	case mode&fs.ModeSymlink != 0:
		to, err := io.ReadAll(io.LimitReader(r, 4096))
		if err != nil {
			return errkind.E(errkind.Corrupt, "unpack", err)
		}
		return u.link(e.Name, string(to))
	}
	return errkind.Errorf(errkind.Denied, "the archive has %q, which is neither file, directory nor link", e.Name)
}

// name checks an entry's.
func (u *unpacker) name(name string) (string, error) {
	if u.files--; u.files < 0 {
		return "", errkind.New(errkind.TooLarge, "the archive has too many files")
	}
	clean := path.Clean(strings.TrimPrefix(filepath.ToSlash(name), "./"))
	if !filepath.IsLocal(clean) {
		return "", errkind.Errorf(errkind.Denied, "the archive has %q, which leaves the task's folder", name)
	}
	return path.Join(u.dest, clean), nil
}

func (u *unpacker) file(name string, r io.Reader, mode fs.FileMode) error {
	target, err := u.name(name)
	if err != nil {
		return err
	}
	counted := &io.LimitedReader{R: r, N: u.left + 1}
	err = place(u.root, target, counted, u.left, mode|0o600)
	u.left = counted.N - 1
	return err
}

func (u *unpacker) dir(name string) error {
	target, err := u.name(name)
	if err != nil {
		return err
	}
	return escape2(u.root.MkdirAll(target, 0o755))
}

// link makes a link that stays below the destination.
func (u *unpacker) link(name, to string) error {
	target, err := u.name(name)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(u.dest, path.Join(path.Dir(target), to))
	if err != nil || path.IsAbs(to) || !filepath.IsLocal(rel) {
		return errkind.Errorf(errkind.Denied, "the archive has a link %q to %q, which leaves it", name, to)
	}
	if err := u.root.MkdirAll(path.Dir(target), 0o755); err != nil {
		return escape(err)
	}
	return escape2(u.root.Symlink(to, target))
}

func escape2(err error) error {
	if err == nil {
		return nil
	}
	return escape(err)
}

// clone gets a repository by the host's git.
func clone(ctx context.Context, root *os.Root, dest, repo string, options map[string]string) error {
	ref := options["ref"]
	if before, query, ok := strings.Cut(repo, "?"); ok {
		repo = before
		if values, err := url.ParseQuery(query); err == nil && ref == "" {
			ref = values.Get("ref")
		}
	}
	if u, err := url.Parse(repo); err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" {
		return errkind.Errorf(errkind.Invalid, "source: %q is no https, http or ssh address of a repository", repo)
	}
	if strings.HasPrefix(ref, "-") {
		return errkind.Errorf(errkind.Invalid, "ref: %q is no name of a commit", ref)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return errkind.New(errkind.Invalid, "source: this node has no git")
	}
	if err := root.MkdirAll(path.Dir(dest), 0o755); err != nil {
		return escape(err)
	}
	top, err := filepath.EvalSymlinks(root.Name())
	if err != nil {
		return err
	}
	parent, err := filepath.EvalSymlinks(filepath.Join(top, path.Dir(dest)))
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(top, parent); err != nil || !filepath.IsLocal(rel) {
		return errkind.New(errkind.Denied, "the destination leaves the task's folder")
	}
	full := filepath.Join(parent, path.Base(dest))
	if info, err := root.Lstat(dest); err == nil && !info.IsDir() {
		return errkind.Errorf(errkind.Invalid, "destination: %s is there and no directory", dest)
	}
	args := []string{"clone", "--quiet", "--no-tags"}
	if ref == "" {
		args = append(args, "--depth=1")
	}
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, git, args...)
		cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:http:ssh")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return errkind.Errorf(errkind.Unavailable, "git %s: %v: %.1000s", args[0], err, out)
		}
		return nil
	}
	if err := run(append(args, "--", repo, full)...); err != nil || ref == "" {
		return err
	}
	return run("-C", full, "checkout", "--quiet", ref, "--")
}
