package tables

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/token"
)

// Where records are that several owners read.
const (
	MountPrefix  = "core/mounts/"
	PolicyPrefix = "sys/policy/"
	IdentityPath = "identity/" // of its mount
)

// NewAccessor draws a name by which something of a kind is told of.
func NewAccessor(kind string) string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%s_%x", kind, b)
}

// AccessorOf draws the accessor of a mount.
func AccessorOf(e *mount.Entry) string {
	if e.Auth() {
		return NewAccessor("auth_" + e.Type)
	}
	return NewAccessor(e.Type)
}

// Tables is what the active server has at hand for every request. Immutable; a change makes the next.
//
// Mounts, policies and identities are those of one namespace, the rest is of all: what a request is given are the
// tables of its own namespace, so that nobody comes to another one's by forgetting to ask.
type Tables struct {
	Scope
	Book    *token.Book // of all namespaces: names of tokens tell which
	Audits  []*audit.Device
	Headers Headers
	Quotas  *quota.Set
	CORS    CORS
	Spaces  *Spaces // all namespaces but the root one

	Locked *Space  // where a request is refused: its namespace, or one above
	top    *Tables // the root namespace's; nil: these are
}

// Headers are the headers of requests that devices record, by name in lower case: true where values are hashed.
// Immutable.
type Headers map[string]bool

// CORS says which pages of other origins browsers may let in. The zero value is off.
type CORS struct {
	Enabled bool     `json:"enabled"`
	Origins []string `json:"allowed_origins"`
	Headers []string `json:"allowed_headers"`
}

// Allows reports whether an origin may be let in.
func (c *CORS) Allows(origin string) bool {
	return c.Enabled && (slices.Contains(c.Origins, "*") || slices.Contains(c.Origins, origin))
}

// LeasePlace is what a lease is for, as quotas see it. Its id is from the root.
func (st *Tables) LeasePlace(id string) quota.Place {
	p := quota.Place{Path: id[:max(strings.LastIndexByte(id, '/'), 0)]}
	in, e, _ := st.Route(p.Path)
	if p.Space = in.Path(); e != nil {
		p.Mount = p.Space + e.Path
	}
	return p
}
