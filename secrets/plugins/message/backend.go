package message

// Methods of the backend that a plug-in serves.
const (
	HandleRequest        = "/pb.Backend/HandleRequest"
	SpecialPaths         = "/pb.Backend/SpecialPaths"
	HandleExistenceCheck = "/pb.Backend/HandleExistenceCheck"
	Cleanup              = "/pb.Backend/Cleanup"
	Setup                = "/pb.Backend/Setup"
	Initialize           = "/pb.Backend/Initialize"
	Type                 = "/pb.Backend/Type"
	Version              = "/logical.PluginVersion/Version"
)

// MultiplexKey is the metadata that says which of a plug-in's instances a call is for.
const MultiplexKey = "multiplex_id"

// Types of backends, as TypeReply has them.
const (
	TypeSecret = 1
	TypeAuth   = 2
)

// Empty has no fields.
type Empty struct{}

// Header is the values of a header.
type Header struct {
	Values []string `pb:"1"`
}

// Error is why a plug-in refuses.
type Error struct {
	Kind uint32 `pb:"1"`
	Text string `pb:"2"`
	Code int64  `pb:"3"` // of HTTP
}

// Kinds of errors.
const (
	ErrUnknown = iota
	ErrUser
	ErrInternal
	ErrCoded
	ErrBadRequest
	ErrUnsupportedOperation
	ErrUnsupportedPath
	ErrInvalidRequest
	ErrDenied
	ErrMultiAuthz
	ErrUnrecoverable
)

// Paths are a backend's special ones.
type Paths struct {
	Root            []string `pb:"1"`
	Unauthenticated []string `pb:"2"`
	Binary          []string `pb:"6"`
}

// Time is a moment.
type Time struct {
	Seconds int64 `pb:"1"`
	Nanos   int32 `pb:"2"`
}

// LeaseOptions are how long something lives, in nanoseconds.
type LeaseOptions struct {
	TTL       int64 `pb:"1"`
	Renewable bool  `pb:"2"`
	Increment int64 `pb:"3"`
	IssueTime *Time `pb:"4"`
	MaxTTL    int64 `pb:"5"`
}

// Secret is a lease. Internal is a JSON object.
type Secret struct {
	Lease    *LeaseOptions `pb:"1"`
	Internal string        `pb:"2"`
	LeaseID  string        `pb:"3"`
}

// Alias is who logs in, or a group of theirs.
type Alias struct {
	MountType     string            `pb:"1"`
	MountAccessor string            `pb:"2"`
	Name          string            `pb:"3"`
	Metadata      map[string]string `pb:"4"`
	ID            string            `pb:"5"`
}

// Auth is a login. Internal is a JSON object.
type Auth struct {
	Lease           *LeaseOptions     `pb:"1"`
	Internal        string            `pb:"2"`
	DisplayName     string            `pb:"3"`
	Policies        []string          `pb:"4"`
	Metadata        map[string]string `pb:"5"`
	Period          int64             `pb:"8"`
	NumUses         int64             `pb:"9"`
	Alias           *Alias            `pb:"11"`
	GroupAliases    []*Alias          `pb:"12"`
	BoundCIDRs      []string          `pb:"13"`
	TokenPolicies   []string          `pb:"14"`
	ExplicitMaxTTL  int64             `pb:"16"`
	TokenType       uint32            `pb:"17"`
	NoDefaultPolicy bool              `pb:"18"`
}

// WrapInfo is what a client asked for of wrapping.
type WrapInfo struct {
	TTL    int64  `pb:"1"`
	Format string `pb:"2"`
}

// Certificate is one, as DER.
type Certificate struct {
	DER []byte `pb:"1"`
}

// Chain is a chain of certificates, the caller's own first.
type Chain struct {
	Certificates []*Certificate `pb:"1"`
}

// TLS is the state of the caller's connection.
type TLS struct {
	HandshakeComplete bool   `pb:"2"`
	Peer              *Chain `pb:"8"`
}

// Connection is where a request came from.
type Connection struct {
	RemoteAddr string `pb:"1"`
	TLS        *TLS   `pb:"2"`
	RemotePort int32  `pb:"3"`
}

// Mounted is the mount that a request came to.
type Mounted struct {
	MountPoint    string `pb:"12"`
	MountType     string `pb:"13"`
	MountAccessor string `pb:"14"`
}

// Holder is who makes a request.
type Holder struct {
	ClientToken     string `pb:"9"`
	Accessor        string `pb:"10"`
	DisplayName     string `pb:"11"`
	EntityID        string `pb:"17"`
	Unauthenticated bool   `pb:"19"`
}

// Request is a request to a backend. Data is a JSON object.
type Request struct {
	ID         string             `pb:"1"`
	Operation  string             `pb:"3"`
	Path       string             `pb:"4"`
	Data       string             `pb:"5"`
	Secret     *Secret            `pb:"6"`
	Auth       *Auth              `pb:"7"`
	Headers    map[string]*Header `pb:"8"`
	Wrap       *WrapInfo          `pb:"15"`
	Connection *Connection        `pb:"20"`
	Holder
	Mounted
}

// Response is a backend's answer. Data is a JSON object, or null.
type Response struct {
	Secret   *Secret            `pb:"1"`
	Auth     *Auth              `pb:"2"`
	Data     string             `pb:"3"`
	Redirect string             `pb:"4"`
	Warnings []string           `pb:"5"`
	Wrap     *WrapInfo          `pb:"6"`
	Headers  map[string]*Header `pb:"7"`
}

// RequestArgs is the argument of HandleRequest and HandleExistenceCheck.
type RequestArgs struct {
	Request *Request `pb:"2"`
}

// RequestReply is the answer to HandleRequest.
type RequestReply struct {
	Response *Response `pb:"1"`
	Err      *Error    `pb:"2"`
}

// ExistenceReply is the answer to HandleExistenceCheck.
type ExistenceReply struct {
	Found  bool   `pb:"1"` // the backend tells
	Exists bool   `pb:"2"`
	Err    *Error `pb:"3"`
}

// PathsReply is the answer to SpecialPaths.
type PathsReply struct {
	Paths *Paths `pb:"1"`
}

// SetupArgs make an instance of the backend. Broker is the id under which the plug-in reaches the server.
type SetupArgs struct {
	Broker uint32            `pb:"1"`
	Config map[string]string `pb:"2"`
	UUID   string            `pb:"3"`
}

// SetupReply is the answer to Setup; Err is "" where it went well.
type SetupReply struct {
	Err string `pb:"1"`
}

// InitializeReply is the answer to Initialize.
type InitializeReply struct {
	Err *Error `pb:"1"`
}

// TypeReply is the answer to Type.
type TypeReply struct {
	Type uint32 `pb:"1"`
}

// VersionReply is the answer to Version.
type VersionReply struct {
	Version string `pb:"1"`
}
