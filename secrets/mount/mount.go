// Package mount says which engine answers which path: an immutable table, so
// that routing a request takes no lock.
//
// A mount's path ends in '/'. No mount lies within another, which makes the
// answer unique and lets a mount be named by its path alone.
package mount

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Entry is one mount as it is stored.
type Entry struct {
	Path        string            `json:"path"` // "secret/", "auth/userpass/"
	Type        string            `json:"type"`
	Description string            `json:"description"`
	UUID        string            `json:"uuid"`
	Accessor    string            `json:"accessor"`
	Local       bool              `json:"local,omitempty"`
	SealWrap    bool              `json:"seal_wrap,omitempty"`
	Options     map[string]string `json:"options,omitempty"`
	Config      Config            `json:"config"`
	External    *External         `json:"external,omitempty"` // nil: its type is built in

	Base  string `json:"-"` // of the namespace's records; "": the root one's
	Space string `json:"-"` // the namespace's id; "": the root one
}

// External is what a mount is told of the plug-in, named by its type, that answers for it.
type External struct {
	Version string `json:"version,omitempty"` // "": that of the catalog
}

// Config is what can be tuned of a mount. Durations of 0 are the system's.
type Config struct {
	DefaultLeaseTTL    time.Duration `json:"default_lease_ttl"`
	MaxLeaseTTL        time.Duration `json:"max_lease_ttl"`
	ForceNoCache       bool          `json:"force_no_cache,omitempty"`
	ListingVisibility  string        `json:"listing_visibility,omitempty"`
	TokenType          string        `json:"token_type,omitempty"`
	AuditRequestClear  []string      `json:"audit_non_hmac_request_keys,omitempty"`
	AuditResponseClear []string      `json:"audit_non_hmac_response_keys,omitempty"`
	PassRequestHeaders []string      `json:"passthrough_request_headers,omitempty"`
	ResponseHeaders    []string      `json:"allowed_response_headers,omitempty"`
	Lockout            Lockout       `json:"user_lockout,omitzero"`
}

// Prefix is where the mount's records are kept, below "logical/" or "auth/" as the contract's key map has it.
func (e *Entry) Prefix() string {
	if e.Auth() {
		return e.Base + "auth/" + e.UUID + "/"
	}
	return e.Base + "logical/" + e.UUID + "/"
}

// Auth reports whether the mount is an auth method.
func (e *Entry) Auth() bool { return strings.HasPrefix(e.Path, "auth/") }

// Table is an immutable set of mounts. The zero value is empty.
type Table struct {
	byPath  map[string]*Entry
	longest int // most slashes of a path
}

// Route returns the mount that path lies in and the rest of the path, or nil.
func (t *Table) Route(path string) (e *Entry, rest string) {
	end := 0
	for range t.longest {
		at := strings.IndexByte(path[end:], '/')
		if at < 0 {
			return t.byPath[path+"/"], "" // the mount itself, without its slash
		}
		end += at + 1
		if e := t.byPath[path[:end]]; e != nil {
			return e, path[end:]
		}
	}
	return nil, ""
}

// Get returns the mount at exactly this path, or nil.
func (t *Table) Get(path string) *Entry { return t.byPath[path] }

// ByAccessor returns the mount with the accessor, or nil.
func (t *Table) ByAccessor(accessor string) *Entry {
	for _, e := range t.byPath {
		if e.Accessor == accessor {
			return e
		}
	}
	return nil
}

// All returns the mounts in the order of their paths.
func (t *Table) All() []*Entry {
	list := make([]*Entry, 0, len(t.byPath))
	for _, e := range t.byPath {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Entry) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// With returns the table with a mount added or, at the same path, replaced.
func (t *Table) With(e *Entry) *Table {
	next := t.clone()
	next.byPath[e.Path] = e
	next.longest = max(next.longest, strings.Count(e.Path, "/"))
	return next
}

// Without returns the table without the mount at path.
func (t *Table) Without(path string) *Table {
	next := t.clone()
	delete(next.byPath, path)
	next.longest = 0
	for p := range next.byPath {
		next.longest = max(next.longest, strings.Count(p, "/"))
	}
	return next
}

func (t *Table) clone() *Table {
	next := &Table{byPath: make(map[string]*Entry, len(t.byPath)+1), longest: t.longest}
	for p, e := range t.byPath {
		next.byPath[p] = e
	}
	return next
}

// CheckNew reports why nothing may be mounted at path, which ends in '/'.
func (t *Table) CheckNew(path string) error {
	for segment := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." ||
			strings.ContainsFunc(segment, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errkind.Errorf(errkind.Invalid, "path %q: has an empty, relative or unprintable segment", path)
		}
	}
	for p := range t.byPath {
		if strings.HasPrefix(path, p) || strings.HasPrefix(p, path) {
			return errkind.E(errkind.Invalid, "", fmt.Errorf("path is already in use at %s", p))
		}
	}
	return nil
}
