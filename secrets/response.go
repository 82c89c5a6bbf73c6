package secrets

import (
	"io"
	"time"
)

// Response is what an engine answers. The zero value is success without a body.
type Response struct {
	Data     []byte // a JSON object, as it is to stand in the envelope; nil for none
	Warnings []string
	Lease    *Lease
	Auth     *Auth
	// LeaseTTL without a Lease is advice on when to read again (KV v1).
	LeaseTTL time.Duration
	// Raw replaces the envelope: certificates, lists of revocations.
	Raw *Raw
	// Missing answers with 404 and the envelope all the same (deleted versions of KV v2).
	Missing bool
	// Status is the status of an answer that HTTP is to call something else than 200, as work that
	// goes on by itself (202); 0 is as usual.
	Status int

	// Ops is what is to be stored, under keys of the engine's own.
	Ops []Op
	// Then, where it is set, is for engine.Stepper once Ops are durable, and what that answers counts in
	// the place of this: for what is done elsewhere, which a crash must not leave behind unwritten.
	Then any
}

// Raw is a body of another kind than JSON.
type Raw struct {
	Status      int // of HTTP; 0 is 200
	ContentType string
	Headers     []string // further ones: name, value, name, ...
	Body        []byte
	// Stream writes the body bit by bit in the place of Body, until it fails or what it shows has
	// ended; flush sends what was written so far.
	Stream func(w io.Writer, flush func()) error
}

// Lease is a secret that ends.
type Lease struct {
	TTL, MaxTTL time.Duration
	Renewable   bool
	// Internal is what the engine needs to renew and revoke it; nobody else sees it.
	Internal []byte
}

// Auth is a login that an engine found good, or a token that was asked for; the
// keeper makes the token.
type Auth struct {
	Principal
	Policies []string
	Metadata map[string]string
	Lifetime
	NumUses    int
	Type       string // service, batch, default-service or default-batch; "": the mount's
	Orphan     bool
	NoDefault  bool   // leave the policy "default" out
	Login      []byte // what the method wants to know at a renewal
	Workload   string // whose life the token follows, in the method's words; "": nobody's
	BoundCIDRs []string
	Role       string
	Suffix     string // of the path that the token says it was made at
	ID         string // asked for by its creator; "" draws one
}

// Lifetime bounds how long a token lives, and whether it may be renewed.
type Lifetime struct {
	TTL, MaxTTL time.Duration
	ExplicitMax time.Duration
	Period      time.Duration
	Renewable   bool
}

// Principal is who a token is made for.
type Principal struct {
	DisplayName string
	Alias       string            // the name of who logs in, at the mount: an entity is found or made by it
	AliasMeta   map[string]string // what the method says of the alias, for templates of policies
	Groups      []string          // external groups of who logs in; nil: the method says nothing of groups
	Entity      string            // where there is no Alias: the entity that the token is of
}
