// Package acl is the pure half of access control: rules, policies and who may do what.
//
// Policy texts (HCL or JSON) are read by Parse into Rules, rules of several policies
// become one Authorizer by Compile, and an Authorizer answers Allow without allocating.
// An Authorizer never changes once compiled, so that all tokens with the same policies
// share one, from any goroutine.
//
// What always holds:
//   - an exact rule beats a prefix rule; of prefixes the longest that matches wins;
//   - of several policies that speak about the same name, deny beats write beats list beats read;
//   - what no rule speaks about is decided by the default policy, except for the resource
//     acl, which nobody has without a rule;
//   - a text with anything that is not understood is refused as a whole, with its position.
//
// The package knows neither clocks nor storage: catalog/grants resolves tokens with it.
package acl

// Resource is what a right is about.
type Resource uint8

// The resources of the contract's rules. The ones before ACL have names, the others are one thing each.
const (
	NoResource Resource = iota // nothing is needed
	Agent
	Event
	Identity
	Intention
	Key
	Node
	Query
	Service
	Session
	Usage // by tenant: Corbel's own
	Jobs  // by namespace: Corbel's own
	// Variable is by namespace and path, default/app/db: Corbel's own.
	Variable
	ACL
	Keyring
	Mesh
	Operator
	Peering
	resourceCount
)

var resourceNames = [resourceCount]string{"", "agent", "event", "identity", "intention", "key", "node", "query",
	"service", "session", "usage", "jobs", "variable",
	"acl", "keyring", "mesh", "operator", "peering"}

// String returns the resource as rules and refusals spell it.
func (r Resource) String() string {
	if r < resourceCount {
		return resourceNames[r]
	}
	return "unknown"
}

// named tells whether rights on r are given by name.
func (r Resource) named() bool { return r > NoResource && r < ACL }

// ParseResource finds a resource by its name.
func ParseResource(name string) (Resource, bool) {
	for r := Agent; r < resourceCount; r++ {
		if resourceNames[r] == name {
			return r, true
		}
	}
	return NoResource, false
}

// Level is how much of a right there is, or is needed.
type Level uint8

// The levels, least first: each includes the ones between Deny and itself.
const (
	Unset Level = iota // no rule says anything
	Deny
	Read
	List // keys only: listing below a prefix
	Write
)

var levelNames = [...]string{"", "deny", "read", "list", "write"}

// String returns the level as rules spell it.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return "unknown"
}

// ParseLevel finds a level by its name; list is one for keys only.
func ParseLevel(r Resource, text string) (Level, bool) {
	for l := Deny; l <= Write; l++ {
		if levelNames[l] == text && (l != List || r == Key) {
			return l, true
		}
	}
	return Unset, false
}

// stronger merges what two policies say about the same name.
func stronger(a, b Level) Level {
	if a == Deny || b == Deny {
		return Deny
	}
	return max(a, b)
}

// Rule is one statement of a policy.
type Rule struct {
	Resource Resource
	Prefix   bool   // Name is the beginning of the names that it speaks about
	Name     string // empty for resources without names
	Level    Level
	// Intentions is the right on the intentions of the services named: Unset follows Level. Services only.
	Intentions Level
}
