package definitions

import (
	"context"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// newsLimit bounds a question to the leader, with the wait for what it told.
const newsLimit = 3 * time.Second

// News has this server know what was decided before a question began. A server that has just started, or that was cut
// off, knows less than the others: what it does not have may have been defined for a while. Safe for concurrent use;
// questions that come while one is under way share the next.
type News struct {
	defs *Definitions
	ask  func(ctx context.Context) (index uint64, err error)
	one  chan struct{} // is held by who asks
	last atomic.Uint64 // number of the question that began last
	err  error         // what came of it; for who holds one
}

// NewNews asks the leader by ask for the index of a view that has all that was decided before.
func NewNews(defs *Definitions, ask func(ctx context.Context) (index uint64, err error)) *News {
	return &News{defs: defs, ask: ask, one: make(chan struct{}, 1)}
}

// Get waits until this server has what was decided before. Unavailable says that it cannot be told whether it has.
func (n *News) Get(ctx context.Context) error {
	came := n.last.Load()
	select {
	case n.one <- struct{}{}:
	case <-ctx.Done():
		return behind(ctx.Err())
	}
	defer func() { <-n.one }()
	if n.last.Load() == came { // no question began since
		n.last.Add(1)
		n.err = n.learn(context.WithoutCancel(ctx)) // others share the answer
	}
	return n.err
}

func (n *News) learn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, newsLimit)
	defer cancel()
	index, err := n.ask(ctx)
	if err != nil {
		return behind(err)
	}
	if err := n.defs.Await(ctx, func(v *View) bool { return v.Index >= index }); err != nil {
		return behind(err)
	}
	return nil
}

func behind(err error) error {
	return errkind.E(errkind.Unavailable, "usage: this server cannot tell whether it has all definitions: try again", err)
}
