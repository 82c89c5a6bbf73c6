package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// folders builds the newest commit in two folders, as the release does, and compares: nothing of the folder, of the
// time or of the environment is in the binary. Two clones have the commit that stands in it, and share what is in the
// build cache, so it takes two links.
func (r *runner) folders() {
	if _, err := r.output(r.root, "git", "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		r.skip("folders", "no commit is at hand to be built twice: "+err.Error())
		return
	}
	dir, err := os.MkdirTemp("", "corbel-folders")
	if err != nil {
		r.fail("folders", err.Error())
		return
	}
	defer os.RemoveAll(dir)
	var sums [2]string
	for i, name := range []string{"a", "somewhere/else"} {
		if sums[i], err = r.builtIn(filepath.Join(dir, name), filepath.Join(dir, fmt.Sprint("corbel", i))); err != nil {
			r.fail("folders", err.Error())
			return
		}
	}
	if sums[0] != sums[1] {
		r.fail("folders", fmt.Sprintf("the same commit in two folders gave two binaries, %s and %s", sums[0], sums[1]))
		return
	}
	r.pass()
}

// builtIn clones the newest commit into a folder and returns the checksum of the binary that it gives.
func (r *runner) builtIn(source, path string) (string, error) {
	if _, err := r.output(r.root, "git", "clone", "-q", "--shared", r.root, source); err != nil {
		return "", err
	}
	_, err := r.output(source, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", path, "./cmd/corbel")
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(b)), os.Remove(path)
}
