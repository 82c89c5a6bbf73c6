package rows

import (
	"context"
	"net/http"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

// Registry is the replicated catalog (catalog/registry.Registry).
type Registry interface {
	State() *statestore.State
	// Read says whether a read in that mode may be served from State now. Its
	// error is of kind NotLeader (another server can) or Unavailable.
	Read(ctx context.Context, mode registry.Mode) (registry.Contact, error)
	Apply(ctx context.Context, c catalog.Command) (catalog.Result, error)
	// Await returns the newest State as soon as indexOf passes min, or when the
	// wait, the context or the store's generation ends.
	Await(ctx context.Context, s registry.Subject, min uint64, wait time.Duration,
		indexOf func(*statestore.State) uint64) *statestore.State
	// Generation counts how often a restore replaced the State. It grows right after the new State
	// is there and before Await returns for it: a State read after Generation is never of an older
	// history, so that what was encoded from one history never answers for another.
	Generation() uint64
	// AppliedAt tells when the change that took an index was committed here; false when that
	// is not known. It costs a look-up.
	AppliedAt(index uint64) (time.Time, bool)
}

// Forwarder hands a whole request to another process and copies the answer.
type Forwarder interface {
	// Forward sends r to the leader, or to any server when toLeader is false. An error means that
	// nothing was written to w. The implementation bounds how often one request is passed on.
	Forward(w http.ResponseWriter, r *http.Request, toLeader bool) error
	// ForwardStream is Forward for rows whose answer or body may be of any length. It tries once. answer.ErrCut means
	// that the answer broke after its beginning was written.
	ForwardStream(w http.ResponseWriter, r *http.Request, toLeader bool) error
}

// Datacenters is the way to the servers of other datacenters.
type Datacenters interface {
	// Known lists the datacenters: this one first, then by distance.
	Known() []string
	// ForwardDC asks a server of dc. The answer's body is in memory. The error is of kind Unavailable
	// ("No path to datacenter") when nobody there can be reached, and for a request that came from
	// another datacenter already: those go no further. ctx is the incoming request's.
	ForwardDC(ctx context.Context, dc string, r *http.Request) (*http.Response, error)
	// ForwardDCStream is ForwardDC for a snapshot: what comes is written to w, and a body of any size is sent.
	ForwardDCStream(w http.ResponseWriter, dc string, r *http.Request) error
}
