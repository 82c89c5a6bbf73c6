package registry

import (
	"io"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/topic"
	"corbel.dev/corbel/kit/errkind"
)

var _ group.Machine = (*Registry)(nil)

// ApplyBatch implements group.Machine. Each result is a *catalog.Result. A
// command that cannot be decoded gets a result with an error of kind Corrupt
// and changes nothing, on every member alike.
func (r *Registry) ApplyBatch(raw [][]byte) []any {
	start, committed := time.Now(), r.cfg.Clock.Now()
	out := make([]any, len(raw))
	commands := make([]catalog.Command, 0, len(raw))
	places, sizes := make([]int, 0, len(raw)), make([]int, 0, len(raw))
	for i, b := range raw {
		c, err := catalog.DecodeCommand(b)
		if err != nil {
			r.cfg.Logger.Error("cannot decode a committed command; ignoring it", "err", err)
			out[i] = &catalog.Result{Index: r.State().Index(), Err: err}
			continue
		}
		commands, places, sizes = append(commands, c), append(places, i), append(sizes, len(b))
	}
	prev := r.State()
	next, results, changes := prev.Apply(commands)
	for i := range results {
		out[places[i]] = &results[i]
	}
	took := time.Since(start)
	r.meters.applied(commands, took)
	if next == prev {
		r.meters.charge(commands, sizes, r.fsyncs(), took, 0)
		return out
	}
	// Lock delays first: who sees the lock released must find the delay armed.
	r.delays.arm(changes.LockDelays)
	r.applied.note(prev.Index(), next.Index(), committed) // who sees the State finds its time
	r.state.Store(next)
	r.tell(next, &changes)
	r.watched.wake(&changes)
	woken := time.Since(start)
	r.meters.notify.Observe(woken)
	r.meters.charge(commands, sizes, r.fsyncs(), took, woken-took)
	r.watched.publish(next, &changes)
	r.ttl.changed(changes.Sessions)
	return out
}

// fsyncs is how many the log has done since it was last asked. Only the applying
// goroutine calls it.
func (r *Registry) fsyncs() uint64 {
	if r.cfg.Fsyncs == nil {
		return 0
	}
	now := r.cfg.Fsyncs()
	since := now - min(r.charged, now)
	r.charged = now
	return since
}

// Snapshot implements group.Machine: a State is its own snapshot.
func (r *Registry) Snapshot() group.Snapshot { return r.State() }

// Restore implements group.Machine. The State is replaced only when the whole
// snapshot was read and found whole; then every waiter returns and every
// subscription ends with topic.ErrReset.
func (r *Registry) Restore(in io.Reader) error {
	next, err := statestore.ReadState(in)
	if err != nil {
		return errkind.E(errkind.Of(err), "restore catalog", err)
	}
	if prev := r.State().Index(); next.Index() < prev {
		r.past.outdone.Store(max(prev, r.past.outdone.Load())) // restores come one at a time
	}
	r.applied.forget()
	r.state.Store(next)
	r.tell(next, nil)
	r.past.generation.Add(1)
	generation := make(chan struct{})
	close(*r.past.restored.Swap(&generation))
	r.watched.streams.Reset(topic.ErrReset)
	r.ttl.replaced(next)
	return nil
}
