// Package snapstore keeps snapshot archives in a folder, in a bucket of Amazon S3
// or of what speaks its protocol, or in one of Google Cloud Storage.
//
// Invariants: under its name an archive is whole, or it is not there; Prune
// removes only what Name made for the same prefix, and never the newest ones. A
// Target may be used from any goroutine. Calls last as long as their context.
package snapstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Target is a place that keeps archives by name.
type Target interface {
	// Put keeps size bytes under name, all or nothing.
	Put(ctx context.Context, name string, archive io.ReadSeeker, size int64) error
	// List names everything that is kept there, in any order.
	List(ctx context.Context) ([]string, error)
	// Delete removes name; one that is not there is no error.
	Delete(ctx context.Context, name string) error
	// String is the place as its operator knows it.
	String() string
}

// suffix ends the names of archives.
const suffix = ".snap"

// Name is the name of an archive taken at a time, and its id in it. Ids grow with time.
func Name(prefix string, at time.Time) (name, id string) {
	id = strconv.FormatInt(at.UnixNano(), 10)
	return prefix + "-" + id + suffix, id
}

// taken reads the time out of a name that Name made for prefix.
func taken(prefix, name string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, prefix+"-")
	if !ok {
		return 0, false
	}
	id, ok := strings.CutSuffix(rest, suffix)
	if !ok {
		return 0, false
	}
	at, err := strconv.ParseInt(id, 10, 64)
	return at, err == nil && at > 0 && id == strconv.FormatInt(at, 10)
}

// Prune deletes all archives of prefix but the newest, and returns the names that
// went. It goes on after an error and returns all of them.
func Prune(ctx context.Context, t Target, prefix string, retain int) (gone []string, err error) {
	names, err := t.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the snapshots in %s: %w", t, err)
	}
	type archive struct {
		name string
		at   int64
	}
	var found []archive
	for _, name := range names {
		if at, ok := taken(prefix, name); ok {
			found = append(found, archive{name, at})
		}
	}
	slices.SortFunc(found, func(a, b archive) int { return cmp.Compare(b.at, a.at) })
	for _, old := range found[min(max(retain, 1), len(found)):] {
		if failed := t.Delete(ctx, old.name); failed != nil {
			err = errors.Join(err, fmt.Errorf("delete %s in %s: %w", old.name, t, failed))
			continue
		}
		gone = append(gone, old.name)
	}
	return gone, err
}
