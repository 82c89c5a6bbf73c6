package asset

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/unpack"
	"corbel.dev/corbel/monitor"
)

// install downloads a build and unpacks it, so that dir is there with all of it or not at all.
func (f *Fetcher) install(ctx context.Context, b *monitor.AssetBuild, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	archive, err := os.CreateTemp(f.cfg.Dir, unfinished+"*")
	if err != nil {
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	defer os.Remove(archive.Name())
	defer archive.Close()
	size, err := f.download(ctx, b, archive)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp(f.cfg.Dir, unfinished+"*")
	if err != nil {
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	defer os.RemoveAll(temp) // after the renaming there is nothing left
	if err := unpack.Archive(ctx, archive, size, temp,
		unpack.Bounds{Bytes: f.cfg.MaxUnpackedBytes, Files: f.cfg.MaxFiles}); err != nil {
		return err
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	if err := syncFolders(temp); err != nil {
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	if err := os.Rename(temp, dir); err != nil {
		return errkind.E(errkind.Unavailable, "cannot be kept", err)
	}
	return syncFolder(f.cfg.Dir)
}

// download fetches the archive and compares its checksum.
func (f *Fetcher) download(ctx context.Context, b *monitor.AssetBuild, to *os.File) (int64, error) {
	if !strings.HasPrefix(b.URL, "http://") && !strings.HasPrefix(b.URL, "https://") {
		return 0, errkind.Errorf(errkind.Invalid, "url %q: only http and https are supported", b.URL)
	}
	if err := f.rate.Wait(ctx); err != nil {
		return 0, errkind.E(errkind.Unavailable, "waiting for its turn to be downloaded", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL, nil)
	if err != nil {
		return 0, errkind.E(errkind.Invalid, "url", err)
	}
	for k, v := range b.Headers {
		r.Header.Set(k, v)
	}
	resp, err := f.cfg.Client.Do(r)
	if err != nil {
		return 0, errkind.E(errkind.Unavailable, "download", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, errkind.Errorf(errkind.Unavailable, "download of %s: %s", b.URL, resp.Status)
	}
	sum := sha512.New()
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(resp.Body, f.cfg.MaxArchiveBytes+1))
	switch {
	case err != nil:
		return 0, errkind.E(errkind.Unavailable, "download of "+b.URL, err)
	case n > f.cfg.MaxArchiveBytes:
		return 0, errkind.Errorf(errkind.TooLarge, "%s is larger than %d bytes", b.URL, f.cfg.MaxArchiveBytes)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, b.SHA512) {
		return 0, errkind.Errorf(errkind.Invalid,
			"sha512 of the downloaded asset (%s) does not match specified sha512 in asset definition (%s)", got, b.SHA512)
	}
	return n, nil
}

// syncFolders makes the names in all folders below dir durable; the files' contents are already.
func syncFolders(dir string) error {
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return syncFolder(path)
	})
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
