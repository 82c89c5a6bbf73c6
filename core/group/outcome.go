package group

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/outcomes"
	"corbel.dev/corbel/kit/errkind"
)

// A leader that loses its place has entries on their way of which the library says that nobody knows what becomes of
// them. That is so for a moment only: the next leader commits them or overwrites them, this member learns which from
// its own log, and applies them itself if they count. So whoever waits is told what happened: the result, or NotLeader,
// after which the command may be sent to the next leader. Unknown is left for what is not decided within a few
// elections, for a process that ends meanwhile, and for entries that a snapshot has swallowed.

// outcomeElections is for how many election timeouts the fate of an entry is waited for: one for the followers to
// notice, a few for an election that is not won at once.
const outcomeElections = 5

// outcomeEvery is how often the log is looked at for an entry that was overwritten: nothing is applied for it.
const outcomeEvery = 10 * time.Millisecond

// untold reports whether somebody here may wait for an entry of a term that is applied now and of which the library
// tells nobody: it does while this server leads in that term.
func (g *Group) untold(term uint64) bool {
	if g.batch.open() == 0 {
		return false
	}
	in := g.current.Load()
	return in == nil || in.raft.State() != raft.Leader || in.raft.CurrentTerm() != term
}

// outcome finds out what became of an entry after this server lost its place, within Config.learn.
func (b *batcher) outcome(in *instance, f raft.ApplyFuture, lost error) ([]any, error) {
	at, ok := outcomes.PlaceOf(f)
	if !ok {
		return nil, applyError(lost)
	}
	cfg := &b.g.cfg
	end := cfg.Clock.NewTimer(cfg.learn)
	defer end.Stop()
	for {
		applied := b.g.fsm.applied.Load() // before the look at what was made: that is noted first
		next := b.g.fsm.next()
		if results, ok := b.g.fsm.outcomes.Of(at); ok {
			return results, nil
		}
		switch in.fateOf(at, applied) {
		case overwritten:
			return nil, errNotLeader
		case swallowed:
			return nil, applyError(lost)
		}
		look := cfg.Clock.NewTimer(outcomeEvery)
		select {
		case <-next:
		case <-look.C:
		case <-end.C:
			look.Stop()
			return nil, applyError(lost)
		case <-in.life.failed:
			look.Stop()
			return nil, applyError(lost)
		case <-in.life.stop:
			look.Stop()
			return nil, applyError(lost)
		}
		look.Stop()
	}
}

// The fates of an entry.
const (
	undecided = iota
	overwritten
	swallowed // it was applied, or not, and what was made of it is gone
)

// fateOf tells what is known of the entry at a place, the machine having everything up to applied.
func (in *instance) fateOf(at outcomes.Place, applied uint64) int {
	if in.raft.CommitIndex() < at.Index {
		return undecided
	}
	var entry raft.Log
	switch err := in.stores.Log.GetLog(at.Index, &entry); {
	case err == nil && entry.Term != at.Term:
		return overwritten
	case err == nil && applied < at.Index:
		return undecided // it is committed, and will be applied
	case err != nil && !errors.Is(err, raft.ErrLogNotFound):
		return swallowed
	case err != nil && applied < at.Index:
		return undecided
	}
	return swallowed
}

// lostPlace reports whether an error of the library says that this server lost its place with the entry in its log.
func lostPlace(err error) bool { return errors.Is(err, raft.ErrLeadershipLost) }

var errResultsMissing = errkind.New(errkind.Unknown, "propose: outcome unknown: the results are missing")
