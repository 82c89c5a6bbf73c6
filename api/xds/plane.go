package xds

import (
	"context"
	"errors"
	"time"

	"corbel.dev/corbel/api/xds/session"
	"corbel.dev/corbel/mesh"
)

// ErrUnauthenticated is wrapped by what Plane.Open returns when no token, or an unknown one, came.
var ErrUnauthenticated = errors.New("the stream's token (metadata x-consul-token) is missing or unknown")

// Node is who a stream's first request says it is. It is a claim: Plane.Open checks it.
type Node = session.Node

// Plane knows the proxies.
type Plane interface {
	// Open finds the proxy that a stream is for and waits until its resources are
	// complete: a reconnecting Envoy is told to drop what is not in the sets. It
	// runs on one of a bounded number of workers; ctx ends with the stream and after
	// Config.OpenTimeout. An error's kind becomes the stream's code: Denied
	// PermissionDenied (and Unauthenticated, if no token or an unknown one came: see
	// ErrUnauthenticated), NotFound and Invalid InvalidArgument, Overloaded
	// ResourceExhausted, the rest Unavailable.
	Open(ctx context.Context, n Node, token string) (Proxy, error)
}

// Proxy is one opened proxy of the plane. All its methods but Done are called
// under a lock of the connection: they must be quick, and must not call back
// into the server other than by Wake. A Proxy whose stream ended before Bind is
// dropped without a word.
type Proxy interface {
	// Bind registers who is woken after sets changed, with their types. Wake
	// never blocks, may be called from any goroutine, also under the plane's locks,
	// and may be called once more after unbind. The first sets are read without it.
	Bind(waker mesh.Waker) (unbind func())
	// Set returns the newest resources of a type.
	Set(t mesh.Type) mesh.Set
	// Applied is told what the proxy acknowledged or refused.
	Applied(Report)
	// Done is closed when the proxy is no longer registered or its token lost its
	// right. It is looked at after Bind and when the proxy is woken with no types: the plane
	// does that when it closes the channel.
	Done() <-chan struct{}
}

// Report is a proxy's answer to one response.
type Report struct {
	Type mesh.Type
	// Resources are those of the response. The slice is valid during the call; the resources may be kept.
	Resources []*mesh.Resource
	// Removed counts the resources that the response removed.
	Removed int
	// Refused is why the proxy did not take them, in its own words, cut to some 500 bytes; "" if it did.
	Refused string
	// Sent is when the response was written and Answered when the answer was read.
	// Sent is zero for resources that the proxy brought along when it came back.
	Sent, Answered time.Time
	// Changed is when the newest of the resources was changed, zero if the proxy got them because it was new.
	Changed time.Time
}
