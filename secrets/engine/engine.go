// Package engine is what the keeper asks of secrets engines and auth methods.
//
// An engine keeps nothing of its own but what it can read again: it reads through a View and
// answers with operations, so it may be called from any goroutine, and its mount may move. It
// lives as long as its mount is unsealed here: what it keeps of parsed keys (record.Cache) goes with it.
package engine

import (
	"context"
	"time"

	"corbel.dev/corbel/secrets"
)

// View is what an engine may read: its own records, under keys of its own.
type View interface {
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
	List(ctx context.Context, prefix, after string, limit int) ([]string, error)
	Scan(ctx context.Context, from, to string, limit int) ([]secrets.Record, error)
}

// Tender is an Engine with work that nobody asks for: tidying, rotation.
type Tender interface {
	Engine
	// Due says what the engine asks of itself by now, as requests of which Op, Rest and Body
	// count; they come to Handle with Request.Due set, in turn and each with a commit of its own.
	// It is asked about once a second, and again at once while it asks for anything: it must be cheap.
	Due(ctx context.Context, view View, now time.Time) ([]*secrets.Request, error)
}

// Stepper is an Engine whose answers have a next step (Response.Then).
type Stepper interface {
	Engine
	Step(ctx context.Context, then any) (*secrets.Response, error)
}

// Engine answers the requests of one mount. It is called from any goroutine;
// requests with the same Serial key are never under way at once, from before
// Handle until their operations are committed.
type Engine interface {
	// Handle answers a request. An error of kind NotFound is an answer without content.
	Handle(ctx context.Context, view View, r *secrets.Request) (*secrets.Response, error)
	// Exists reports whether a write would be an update rather than a create;
	// ok is false where the engine does not tell, and a write is always an update.
	Exists(ctx context.Context, view View, r *secrets.Request) (exists, ok bool, err error)
	// Serial names what the request must have to itself; "" is nothing.
	Serial(r *secrets.Request) string
	// Special says which of the engine's paths are special.
	Special() Special
}

// Alone is the error of a Handle that finds only on its way that the request must have something to itself, by this
// name. The keeper asks again with Request.Alone set, and the name is taken as by Serial. Only of requests whose
// Serial is "".
type Alone string

// Error implements error.
func (Alone) Error() string { return "the request must be alone" }

// Waker is an Engine that may have to be started before it can say what of it is special, as a program of its own.
type Waker interface {
	Engine
	// Wake starts it, and says what is special. While it fails nothing of the engine is open, and nobody is answered.
	Wake(ctx context.Context) (Special, error)
}

// Special are paths below a mount that the keeper treats in their own way: '+' stands
// for one segment, '*' at the end for anything.
type Special struct {
	Open      []string // need no token
	Token     []string // need a token and no policy: what they tell depends on the token's rights
	Visible   []string // those of Token that answer without a token too, with what everybody may see
	Protected []string // need sudo
	Personal  bool     // each token has records of its own, below its hash, and sees no others
}

// Sudo are paths that all need sudo.
var Sudo = Special{Protected: []string{"*"}}

// Leaser is an Engine whose answers have leases. Both calls may come again for what was done
// already (after a crash, a lost commit): doing it twice must be no error. Their
// operations are committed with the lease's own change; nothing else of the response counts.
type Leaser interface {
	Engine
	// Renew makes what the lease is for live until l.Expires.
	Renew(ctx context.Context, view View, l Lease) (*secrets.Response, error)
	// Revoke ends what the lease is for. An error puts it off: it is tried again, ever more seldom.
	Revoke(ctx context.Context, view View, l Lease) (*secrets.Response, error)
}

// Renewer is an auth method that has a say in whether its tokens are renewed.
type Renewer interface {
	Engine
	// Renewable reports why not, or by which terms. r is the renewal's request.
	Renewable(ctx context.Context, view View, r *secrets.Request, l Login) (Terms, error)
}

// Login is what a token says of the login that made it.
type Login struct {
	Data     []byte   // secrets.Auth.Login
	Workload string   // secrets.Auth.Workload
	Policies []string // of the token, by its login: in order, with "default" where it has that
}

// Terms are the lifetimes that a method's role gives by now, as in secrets.Auth: a renewal goes by them, not by those
// of the login.
type Terms struct{ TTL, MaxTTL, Period time.Duration }

// Workplaces is an auth method whose tokens are of workloads, and end with them.
type Workplaces interface {
	Engine
	// Live reports whether the workload is there. An error is no answer: nothing ends by it.
	Live(ctx context.Context, view View, workload string, now time.Time) (bool, error)
}

// Lease is a lease as its engine knows it.
type Lease struct {
	ID       string
	Internal []byte // as the engine gave it
	Expires  time.Time
}
