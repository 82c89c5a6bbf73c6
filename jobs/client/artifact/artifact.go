// Package artifact downloads what a task needs before it starts: files and archives by HTTP, repositories by git.
//
// What always holds:
//   - Nothing is written outside of the task's folder: neither by the destination, nor by names or links in an
//     archive (os.Root). An archive with such names, with devices or pipes is refused whole.
//   - With a checksum, nothing of a file that does not have it arrives at its destination.
//   - Bytes, files and time are bounded (Limits), also of what archives unpack to.
package artifact

import (
	"context"
	"crypto/md5"  //nolint:gosec // contract: what the publisher gave
	"crypto/sha1" //nolint:gosec // contract: what the publisher gave
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
)

// Limits bound a download. Zero means the default.
type Limits struct {
	Bytes   int64         // of a file, and of what it unpacks to: 100 GiB
	Files   int           // in an archive: 4096
	Timeout time.Duration // 30 min
	// File allows sources on the host's disk.
	File bool
}

// Step is the step of a task's start. It implements allocrunner.Step.
type Step struct {
	Limits Limits
	Client *http.Client
}

// Prepare implements allocrunner.Step. What was downloaded once is there for the next start of the task.
func (s *Step) Prepare(ctx context.Context, w *allocrunner.Work) error {
	if len(w.Task.Artifacts) == 0 || !w.First {
		return nil
	}
	w.Note("Downloading Artifacts", "Client is downloading artifacts")
	for _, a := range w.Task.Artifacts {
		src := &source{text: w.Env.Replace(jobwire.Get(a.GetterSource)), mode: jobwire.Get(a.GetterMode),
			dest: w.Env.Replace(jobwire.Get(a.RelativeDest)), options: map[string]string{}, headers: map[string]string{},
			insecure: jobwire.Get(a.GetterInsecure)}
		for name, value := range a.GetterOptions {
			src.options[name] = w.Env.Replace(value)
		}
		for name, value := range a.GetterHeaders {
			src.headers[name] = w.Env.Replace(value)
		}
		if err := s.Get(ctx, w.Dirs.Task, src); err != nil {
			w.Note("Failed Artifact Download", fmt.Sprintf("failed to download artifact %q: %v", src.text, err))
			return errkind.E(errkind.Of(err), "failed to download artifact "+src.text, err)
		}
	}
	return nil
}

// source is an artifact, with its values put in.
type source struct {
	text, mode, dest string
	options, headers map[string]string
	insecure         bool
}

func (l *Limits) complete() Limits {
	c := *l
	if c.Bytes <= 0 {
		c.Bytes = 100 << 30
	}
	if c.Files <= 0 {
		c.Files = 4096
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Minute
	}
	return c
}

// Get downloads src into a task's folder.
func (s *Step) Get(ctx context.Context, dir string, src *source) error {
	limits := s.Limits.complete()
	ctx, cancel := context.WithTimeout(ctx, limits.Timeout)
	defer cancel()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	dest := inside(src.dest)
	repo, isGit := strings.CutPrefix(src.text, "git::")
	if before, _, _ := strings.Cut(src.text, "?"); isGit || strings.HasSuffix(before, ".git") {
		return clone(ctx, root, dest, repo, src.options)
	}
	u, err := url.Parse(src.text)
	if err != nil {
		return errkind.E(errkind.Invalid, "source", err)
	}
	query := u.Query()
	option := func(name string) string { // in the source or beside it; the server does not see it
		value := query.Get(name)
		query.Del(name)
		if beside := src.options[name]; beside != "" {
			return beside
		}
		return value
	}
	checksum, archive, name := option("checksum"), option("archive"), option("filename")
	u.RawQuery = query.Encode()
	if name == "" {
		name = path.Base(u.Path)
	}
	body, err := s.open(ctx, u, src, &limits)
	if err != nil {
		return err
	}
	defer body.Close()
	file, err := fetched(ctx, body, checksum, limits.Bytes)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close(); _ = os.Remove(file.Name()) }()
	kind := ""
	if src.mode != "file" && archive != "false" {
		kind = kindOf(name, archive)
	}
	if kind == "" && src.mode == "dir" {
		return errkind.Errorf(errkind.Invalid, "source: %s is no archive, so it cannot be a directory", name)
	}
	if kind != "" {
		return unpack(root, dest, file, kind, &limits)
	}
	target := dest
	if src.mode != "file" {
		target = path.Join(dest, path.Base(path.Clean("/"+name)))
	}
	return place(root, target, file, limits.Bytes, 0o644)
}

// inside is a destination below the task's folder; "local" when none is given.
func inside(dest string) string {
	if dest == "" {
		return "local"
	}
	return strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(dest)), "/")
}

// open begins to read a source.
func (s *Step) open(ctx context.Context, u *url.URL, src *source, limits *Limits) (io.ReadCloser, error) {
	switch u.Scheme {
	case "http", "https":
	case "file":
		if !limits.File {
			return nil, errkind.New(errkind.Denied, "source: files of the host are not allowed")
		}
		return os.Open(u.Path)
	default:
		return nil, errkind.Errorf(errkind.Invalid, "source: %q is none of http, https, git::", u.Scheme)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "source", err)
	}
	for name, value := range src.headers {
		req.Header.Set(name, value)
	}
	client := s.Client
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "", err)
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		kind := errkind.Unavailable
		if res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusForbidden {
			kind = errkind.NotFound
		}
		return nil, errkind.Errorf(kind, "the source answers %s", res.Status)
	}
	return res.Body, nil
}

// fetched is body as a temporary file, when its checksum is right.
func fetched(ctx context.Context, body io.Reader, checksum string, most int64) (_ *os.File, err error) {
	sum, want, err := sumOf(checksum)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "corbel-artifact-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	var out io.Writer = file
	if sum != nil {
		out = io.MultiWriter(file, sum)
	}
	n, err := io.Copy(out, io.LimitReader(body, most+1))
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, errkind.E(errkind.Unavailable, "", err)
	}
	if n > most {
		return nil, errkind.Errorf(errkind.TooLarge, "the file has more than %d bytes", most)
	}
	if sum != nil {
		if got := hex.EncodeToString(sum.Sum(nil)); got != want {
			return nil, errkind.Errorf(errkind.Corrupt, "the checksum is %s, not %s", got, want)
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return file, err
}

// sumOf reads "sha256:...", or the sum alone.
func sumOf(text string) (hash.Hash, string, error) {
	if text == "" {
		return nil, "", nil
	}
	kind, want, ok := strings.Cut(text, ":")
	if !ok {
		want = text
		kind = map[int]string{32: "md5", 40: "sha1", 64: "sha256", 128: "sha512"}[len(text)]
	}
	want = strings.ToLower(want)
	switch kind {
	case "md5":
		return md5.New(), want, nil
	case "sha1":
		return sha1.New(), want, nil
	case "sha256":
		return sha256.New(), want, nil
	case "sha512":
		return sha512.New(), want, nil
	}
	return nil, "", errkind.Errorf(errkind.Invalid, "checksum: %.80q is none of md5:, sha1:, sha256:, sha512:", text)
}

// place copies a file to its destination.
func place(root *os.Root, target string, from io.Reader, most int64, mode os.FileMode) error {
	if err := root.MkdirAll(path.Dir(target), 0o755); err != nil {
		return escape(err)
	}
	if info, err := root.Lstat(target); err == nil && !info.Mode().IsRegular() {
		return errkind.Errorf(errkind.Invalid, "destination: %s is there and no file", target)
	}
	f, err := root.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return escape(err)
	}
	n, err := io.Copy(f, io.LimitReader(from, most+1))
	if err == nil && n > most {
		err = errkind.New(errkind.TooLarge, "the archive unpacks to too many bytes")
	}
	return errors.Join(err, f.Close())
}

func escape(err error) error {
	if strings.Contains(err.Error(), "escapes") {
		return errkind.E(errkind.Denied, "the destination leaves the task's folder", err)
	}
	return err
}
