// Package kvrows answers /v1/kv, /v1/txn and /v1/session. It takes no decision on state: the catalog refuses what may
// not be. Get and Set are the rows of one key for both paths to the API.
package kvrows

import (
	"context"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
)

// Config is what the rows of keys and sessions need.
type Config struct {
	Sessions      Sessions
	SessionTTLMin time.Duration // [10 s]
	KeyListPolicy bool          // listing keys below a prefix needs the list right
}

// Sessions keeps sessions alive.
type Sessions interface {
	CreateSession(ctx context.Context, s catalog.Session) (string, error)
	RenewSession(ctx context.Context, id string) (*catalog.Session, error)
	DestroySession(ctx context.Context, id string) error
}

// Rows are the rows of keys, transactions and sessions.
type Rows struct{ Config }

// New makes the rows; it starts nothing.
func New(cfg Config) *Rows {
	rows.OrDefault(&cfg.SessionTTLMin, 10*time.Second)
	return &Rows{cfg}
}
