package monitor

import "corbel.dev/corbel/kit/tagproto"

// Asset is an archive of programs or scripts that checks, handlers, mutators and filters need.
type Asset struct {
	URL     string        `json:"url,omitempty" pb:"2"`
	SHA512  string        `json:"sha512,omitempty" pb:"3"`
	Filters []string      `json:"filters" pb:"5"`
	Builds  []*AssetBuild `json:"builds" pb:"6"`
	Meta    `json:"metadata,omitempty" pb:"8"`
	Headers map[string]string `json:"headers" pb:"9"`
	Extra   tagproto.Extra    `json:"-"`
}

// AssetBuild is an asset's archive for the entities that its filters hold for.
type AssetBuild struct {
	URL     string            `json:"url,omitempty" pb:"2"`
	SHA512  string            `json:"sha512,omitempty" pb:"3"`
	Filters []string          `json:"filters" pb:"5"`
	Headers map[string]string `json:"headers" pb:"9"`
	Extra   tagproto.Extra    `json:"-"`
}

// Types of handlers.
const (
	HandlerPipe = "pipe"
	HandlerTCP  = "tcp"
	HandlerUDP  = "udp"
	HandlerSet  = "set"
)

// Handler is where events go: a command, a socket, or other handlers.
type Handler struct {
	Meta          `json:"metadata,omitempty" pb:"1"`
	Type          string         `json:"type,omitempty" pb:"2"`
	Mutator       string         `json:"mutator,omitempty" pb:"3"`
	Command       string         `json:"command,omitempty" pb:"4"`
	Timeout       uint32         `json:"timeout" pb:"5"` // seconds
	Socket        *HandlerSocket `json:"socket,omitempty" pb:"6"`
	Handlers      []string       `json:"handlers" pb:"7"`
	Filters       []string       `json:"filters" pb:"8"`
	EnvVars       []string       `json:"env_vars" pb:"9"`
	RuntimeAssets []string       `json:"runtime_assets" pb:"13"`
	Secrets       []*Secret      `json:"secrets" pb:"14"`
	Extra         tagproto.Extra `json:"-"`
}

// HandlerSocket is where a tcp or udp handler sends to.
type HandlerSocket struct {
	Host  string         `json:"host,omitempty" pb:"1"`
	Port  uint32         `json:"port" pb:"2"`
	Extra tagproto.Extra `json:"-"`
}

// Types of mutators; an empty one is a pipe.
const (
	MutatorPipe       = "pipe"
	MutatorJavaScript = "javascript"
)

// Mutator makes what a handler gets of an event.
type Mutator struct {
	Meta          `json:"metadata,omitempty" pb:"1"`
	Command       string         `json:"command,omitempty" pb:"2"`
	Timeout       uint32         `json:"timeout" pb:"3"` // seconds
	EnvVars       []string       `json:"env_vars" pb:"4"`
	RuntimeAssets []string       `json:"runtime_assets" pb:"8"`
	Secrets       []*Secret      `json:"secrets" pb:"9"`
	Type          string         `json:"type,omitempty" pb:"10"`
	Eval          string         `json:"eval,omitempty" pb:"11"` // JavaScript: the body of a function
	Extra         tagproto.Extra `json:"-"`
}

// Actions of filters.
const (
	FilterAllow = "allow"
	FilterDeny  = "deny"
)

// EventFilter lets events pass, or not.
type EventFilter struct {
	Meta          `json:"metadata,omitempty" pb:"1"`
	Action        string         `json:"action,omitempty" pb:"2"`
	Expressions   []string       `json:"expressions" pb:"3"` // JavaScript
	When          *Windows       `json:"when,omitempty" pb:"6"`
	RuntimeAssets []string       `json:"runtime_assets" pb:"8"`
	Extra         tagproto.Extra `json:"-"`
}

// Pipeline says which filters, mutators and handlers an event passes.
type Pipeline struct {
	Meta      `json:"metadata,omitempty" pb:"1"`
	Workflows []*Workflow    `json:"workflows" pb:"2"`
	Extra     tagproto.Extra `json:"-"`
}

// Workflow is one way through a pipeline.
type Workflow struct {
	Name    string         `json:"name" pb:"1"`
	Filters []*Ref         `json:"filters,omitempty" pb:"2"`
	Mutator *Ref           `json:"mutator,omitempty" pb:"3"`
	Handler *Ref           `json:"handler" pb:"4"`
	Extra   tagproto.Extra `json:"-"`
}

// Namespace keeps objects apart.
type Namespace struct {
	Name  string         `json:"name,omitempty" pb:"1"`
	Extra tagproto.Extra `json:"-"`
}

// User is somebody, or something, that logs in with a password.
type User struct {
	Username     string         `json:"username,omitempty" pb:"1"`
	Password     string         `json:"password,omitempty" pb:"2"` // on the way in only; never stored
	Groups       []string       `json:"groups,omitempty" pb:"3"`
	Disabled     bool           `json:"disabled" pb:"4"`
	PasswordHash string         `json:"password_hash,omitempty" pb:"5"` // bcrypt; never shown
	Extra        tagproto.Extra `json:"-"`
}

// APIKey lets its bearer act as a user. Its name is the key.
type APIKey struct {
	Meta      `json:"metadata,omitempty" pb:"1"`
	Username  string         `json:"username,omitempty" pb:"2"`
	CreatedAt int64          `json:"created_at,omitempty" pb:"3"`
	Hash      []byte         `json:"hash,omitempty" pb:"4"`
	Extra     tagproto.Extra `json:"-"`
}

// Rule allows verbs on kinds of objects, or on some of them by name.
type Rule struct {
	Verbs         []string       `json:"verbs" pb:"1"`
	Resources     []string       `json:"resources" pb:"2"`
	ResourceNames []string       `json:"resource_names" pb:"3"`
	Extra         tagproto.Extra `json:"-"`
}

// Role holds the rules of a namespace, ClusterRole those of any.
type Role struct {
	Rules []Rule `json:"rules" pb:"1"`
	Meta  `json:"metadata,omitempty" pb:"4"`
	Extra tagproto.Extra `json:"-"`
}

// ClusterRole is a Role for use in any namespace and outside of them.
type ClusterRole struct {
	Rules []Rule `json:"rules" pb:"1"`
	Meta  `json:"metadata,omitempty" pb:"3"`
	Extra tagproto.Extra `json:"-"`
}

// RoleBinding gives a role to users and groups in a namespace.
type RoleBinding struct {
	Subjects []BoundTo `json:"subjects" pb:"1"`
	RoleRef  RoleRef   `json:"role_ref" pb:"2"`
	Meta     `json:"metadata,omitempty" pb:"5"`
	Extra    tagproto.Extra `json:"-"`
}

// ClusterRoleBinding gives a cluster role to users and groups everywhere.
type ClusterRoleBinding struct {
	Subjects []BoundTo `json:"subjects" pb:"1"`
	RoleRef  RoleRef   `json:"role_ref" pb:"2"`
	Meta     `json:"metadata,omitempty" pb:"4"`
	Extra    tagproto.Extra `json:"-"`
}

// BoundTo is a user or a group (the contract's Subject).
type BoundTo struct {
	Type  string         `json:"type" pb:"1"`
	Name  string         `json:"name" pb:"2"`
	Extra tagproto.Extra `json:"-"`
}

// RoleRef names a role or a cluster role.
type RoleRef struct {
	Type  string         `json:"type" pb:"1"`
	Name  string         `json:"name" pb:"2"`
	Extra tagproto.Extra `json:"-"`
}
