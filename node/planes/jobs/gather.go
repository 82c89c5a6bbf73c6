package jobsplane

import (
	"context"
	"sync"

	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/errkind"
)

// gatherer makes one command of what many nodes send while another one is committed (NN-5): the first goes at once,
// and batches grow with the load. What waits is bounded by count; beyond it callers are refused as Overloaded.
type gatherer struct {
	commit func(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error)
	head   func(kind string) jobstore.Head
	kind   string

	mu      sync.Mutex // guards waiting
	waiting *bundle
	some    chan struct{}
}

// bundle is a command in the making.
type bundle struct {
	cmd  jobstore.Command
	size int
	done chan struct{}
	out  *jobstore.Result
	err  error
}

// maxGathered bounds the parts of one command.
const maxGathered = 50_000

func newGatherer(g *groupState, head func(string) jobstore.Head, kind string) *gatherer {
	return &gatherer{commit: g.propose, head: head, kind: kind, some: make(chan struct{}, 1)}
}

// add puts n parts into the next command and waits until it is committed.
func (g *gatherer) add(ctx context.Context, n int, put func(*jobstore.Command)) (*jobstore.Result, error) {
	g.mu.Lock()
	if g.waiting == nil {
		g.waiting = &bundle{done: make(chan struct{})}
	}
	b := g.waiting
	if b.size > 0 && b.size+n > maxGathered {
		g.mu.Unlock()
		return nil, errkind.New(errkind.Overloaded, "too much of nodes waits to be stored: try again")
	}
	b.size += n
	put(&b.cmd)
	g.mu.Unlock()
	select {
	case g.some <- struct{}{}:
	default:
	}
	select {
	case <-b.done:
		return b.out, b.err
	case <-ctx.Done():
		return nil, errkind.E(errkind.Unknown, "jobs: stored or not", ctx.Err())
	}
}

// run commits bundle after bundle until ctx ends.
func (g *gatherer) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.some:
		}
		g.mu.Lock()
		b := g.waiting
		g.waiting = nil
		g.mu.Unlock()
		if b == nil {
			continue
		}
		b.cmd.Head = g.head(g.kind)
		b.out, b.err = g.commit(ctx, &b.cmd)
		close(b.done)
	}
}
