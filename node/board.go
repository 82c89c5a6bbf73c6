package node

import (
	"cmp"
	"context"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/mesh/board"
)

// newBoard makes what tells followers how the mesh is. It is made before the log is opened, so
// that it hears of all that is applied.
func newBoard(p *Process) (*board.Board, error) {
	return board.New(board.Config{
		Catalog: p.registry, Access: boardAccess{p}, Datacenter: p.Cfg.Node.Datacenter,
		DefaultAllow: cmp.Or(p.Cfg.Connect.DefaultIntentionPolicy, defaultPolicy(p.Cfg)) == "allow",
		Clock:        p.Clock, Logger: p.Log, Metrics: p.Metrics,
	})
}

// boardAccess is the rights of tokens, which are made after the board.
type boardAccess struct{ p *Process }

// Grant implements board.Access.
func (a boardAccess) Grant(ctx context.Context, token string) (*acl.Grant, error) {
	return a.p.access.tokens.Grant(ctx, token)
}
