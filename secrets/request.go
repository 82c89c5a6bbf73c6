package secrets

import (
	"net/netip"
	"time"

	"corbel.dev/corbel/secrets/policy"
)

// Operation is what a request does. The names are those of the audit log.
type Operation uint8

// The operations.
const (
	Read Operation = iota
	List
	Create // a write where there is nothing, for engines that can tell
	Update
	Patch
	Delete
	Scan
)

var operationNames = [...]string{"read", "list", "create", "update", "patch", "delete", "scan"}

// String returns the operation's name.
func (o Operation) String() string { return operationNames[o] }

// Need is the capability that the operation asks for.
func (o Operation) Need() policy.Capability {
	return [...]policy.Capability{policy.Read, policy.List, policy.Create, policy.Update, policy.Patch, policy.Delete,
		policy.Scan}[o]
}

// Writes reports whether the operation may change something.
func (o Operation) Writes() bool { return o == Create || o == Update || o == Patch || o == Delete }

// Request is one request on its way through the plane.
type Request struct {
	ID    string // a UUID, the same in the response and the audit log
	Op    Operation
	Path  string // the whole path in its namespace, without "/v1/" and without a leading slash
	Mount string // the part that the mount took, with its '/' at the end; set by the keeper
	Rest  string // the part behind it
	Body  []byte // the JSON object of a write, as it came; nil for none
	Query Fields // parameters of the query, of reads and lists
	Caller
	Origin
	Wrap  time.Duration // asked for with X-Vault-Wrap-TTL; 0: not
	Now   time.Time     // when it arrived: what engines take for the time
	Alone bool          // asked again, with what engine.Alone named to itself; set by the keeper
	Due   bool          // asked by the engine itself (engine.Tender); nobody outside can set it
	Namespace

	fields Fields // of Body, once asked for
}

// Namespace is where a request is made. Before it is routed, Space is the one that it names beside its path, and
// SpaceID is "".
type Namespace struct {
	Space   string // its path from the root, with '/' at its end; "": the root one
	SpaceID string // "root", or what ends the ids of its tokens and leases
}

// FromRoot is the request's path from the root namespace.
func (r *Request) FromRoot() string {
	if r.Space == "" {
		return r.Path
	}
	return r.Space + r.Path
}

// Origin is where a request came from, as its connection and the hosts on its way tell.
type Origin struct {
	Remote     netip.Addr
	RemotePort uint16
	// that the caller's TLS connection showed to hold, as DER, the caller's own first; nobody has
	// judged them
	Certificates [][]byte
	Headers      map[string][]string // those that the audit devices record, by name in lower case
	From         string              // the host that the request was handed on by; "": it came from its client
}

// Caller is who asks: the token that was sent, and what is known of it once it was found good.
type Caller struct {
	Token  string
	Holder string   // the display name of the token, once it was found good
	Who    Identity // whose token it is, for templates; nil: nobody's
	Whose  string   // the entity of the token, once it was found good; "": it has none
	// Factors are the second factors that a login brings along (X-Vault-MFA): METHOD[:PASSCODE] each.
	Factors []string
	Basic   string // what follows "Basic" in Authorization: a client of OAuth, not of the plane
}

// Identity is who makes a request, as templates of policies and engines name parts of an identity.
type Identity interface {
	// Variable gives the value of a variable like "identity.entity.name"; ok is false where there is none.
	Variable(name string) (value string, ok bool)
}

// Fields returns the request's parameters: those of the body, else of the query.
// A body that is no JSON object is an error of kind Invalid.
func (r *Request) Fields() (*Fields, error) {
	if r.fields.values == nil {
		f, err := ParseFields(r.Body)
		if err != nil {
			return nil, err
		}
		for name, v := range r.Query.values {
			if _, has := f.values[name]; !has {
				f.values[name] = v
			}
		}
		r.fields = f
	}
	return &r.fields, nil
}
