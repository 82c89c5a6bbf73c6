// Package kvrows answers /v1/kv, /v1/txn and /v1/session. It takes no decision on state: the catalog refuses what may
// not be. Get and Set are the rows of one key for both paths to the API.
package kvrows

import (
	"context"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
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

// Routes are the rows of this part of the contract.
func (kr *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Read("GET", rows.KVPattern, acl.Key, kr.kvGet),
		rows.Write("PUT", rows.KVPattern, acl.Key, kvPut),
		rows.Write("DELETE", rows.KVPattern, acl.Key, kvDelete),
		rows.Write("PUT", "/v1/txn", acl.Key, kr.txn),
		rows.Write("PUT", "/v1/session/create", acl.Session, kr.sessionCreate),
		rows.Write("PUT", "/v1/session/destroy/", acl.Session, kr.sessionDestroy),
		rows.Write("PUT", "/v1/session/renew/", acl.Session, kr.sessionRenew),
		rows.Read("GET", "/v1/session/info/", acl.Session, sessionInfo),
		rows.Read("GET", "/v1/session/node/", acl.Session, sessionNode),
		rows.Read("GET", "/v1/session/list", acl.Session, sessionList),
	}
}
