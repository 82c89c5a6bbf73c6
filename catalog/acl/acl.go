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
	// What follows are single rights on jobs, by namespace, and on variables, by namespace and path. No rule names them:
	// rules about Jobs and Variable give them, all that their level has, or those that a policy of Nomad's lists.
	JobsList
	JobsRead
	JobsLogs
	JobsFiles
	JobsSubmit
	JobsDispatch
	JobsScale
	JobsScaling // reading how jobs scale
	JobsExec
	JobsExecRaw // in tasks that nothing isolates
	JobsLifecycle
	VariableList
	VariableRead
	VariableWrite
	VariableDestroy
	ACL
	Keyring
	Mesh
	Operator
	Peering
	// The jobs plane's nodes, agents and servers, for policies of Nomad's. Where those say nothing, the rules about node,
	// agent and operator count.
	JobsNode
	JobsAgent
	JobsOperator
	resourceCount
)

var resourceNames = [resourceCount]string{"", "agent", "event", "identity", "intention", "key", "node", "query",
	"service", "session", "usage", "jobs", "variable",
	"jobs-list", "jobs-read", "jobs-logs", "jobs-files", "jobs-submit", "jobs-dispatch", "jobs-scale", "jobs-scaling",
	"jobs-exec", "jobs-exec-raw", "jobs-lifecycle", "variable-list", "variable-read", "variable-write",
	"variable-destroy", "acl", "keyring", "mesh", "operator", "peering", "jobs-node", "jobs-agent", "jobs-operator"}

// String returns the resource as rules and refusals spell it.
func (r Resource) String() string {
	if r < resourceCount {
		return resourceNames[r]
	}
	return "unknown"
}

// named tells whether rights on r are given by name.
func (r Resource) named() bool { return r > NoResource && r < ACL }

// single tells whether r is what rules give with Jobs or Variable, or with a policy of Nomad's alone.
func (r Resource) single() bool { return r >= JobsList && r <= VariableDestroy || r >= JobsNode }

// ParseResource finds a resource that rules may name.
func ParseResource(name string) (Resource, bool) {
	for r := Agent; r < resourceCount; r++ {
		if resourceNames[r] == name && !r.single() {
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
	None               // a rule speaks of it and gives nothing; another policy may
	Deny
	Read
	List // keys only: listing below a prefix
	Write
)

var levelNames = [...]string{"", "none", "deny", "read", "list", "write"}

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
	// Can are the single rights of a rule about Jobs or Variable. Where they are none, Level says which.
	Can Rights
}

// Rights are single rights on jobs or variables, a bit for each.
type Rights uint32

func rightOf(r Resource) Rights { return 1 << (r - JobsList) }

// Rights that levels have. The first right, JobsList, is bit 0.
const (
	jobsRead = 1 | 1<<(JobsRead-JobsList) | 1<<(JobsLogs-JobsList) | 1<<(JobsFiles-JobsList) |
		1<<(JobsScaling-JobsList)
	jobsWrite     = 1<<(JobsLifecycle-JobsList+1) - 1
	variableRead  = 1<<(VariableList-JobsList) | 1<<(VariableRead-JobsList)
	variableWrite = 1<<(VariableDestroy-JobsList+1) - 1 - jobsWrite
)

// rights are those that a rule about Jobs or Variable gives.
func (r *Rule) rights() Rights {
	switch {
	case r.Can != 0 || r.Level <= Deny:
		return r.Can
	case r.Resource == Jobs && r.Level == Read:
		return jobsRead
	case r.Resource == Jobs:
		return jobsWrite
	case r.Level == Read:
		return variableRead
	}
	return variableWrite
}
