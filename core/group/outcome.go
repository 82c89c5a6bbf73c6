package group

import (
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/hashicorp/raft"

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

// place is where a leader put an entry: nobody else puts another one there in the same term.
type place struct{ index, term uint64 }

// placeOf returns where the library put the entry of a future that has ended; false when it was never put anywhere.
// The library tells the index alone, and the term is half of the name.
func placeOf(f raft.ApplyFuture) (place, bool) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return place{}, false
	}
	log := v.Elem().FieldByName("log")
	if !log.IsValid() || log.Kind() != reflect.Struct {
		return place{}, false
	}
	index, term := log.FieldByName("Index"), log.FieldByName("Term")
	if !index.IsValid() || !term.IsValid() || !index.CanUint() || !term.CanUint() {
		return place{}, false
	}
	at := place{index.Uint(), term.Uint()}
	return at, at.index != 0 && at.term != 0
}

// outcomesKept bounds what is kept of entries that were applied without anybody to tell: at most maxInFlight of them
// have somebody who looks, and the others are those that the next leader wrote until he does.
const outcomesKept = 64

// outcomes keeps what the machine made of the newest entries that it applied while somebody of this process waited for
// one, and the library had nobody to tell. It is filled by the goroutine that applies, and read by any.
type outcomes struct {
	mu   sync.Mutex // guards kept
	kept []madeOf
}

type madeOf struct {
	at      place
	results []any
}

// note keeps what was made of an entry.
func (o *outcomes) note(at place, results []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.kept) >= outcomesKept {
		o.kept = append(o.kept[:0], o.kept[1:]...)
	}
	o.kept = append(o.kept, madeOf{at, results})
}

// of returns what was made of the entry at a place.
func (o *outcomes) of(at place) ([]any, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.kept {
		if m.at == at {
			return m.results, true
		}
	}
	return nil, false
}

// forget drops what nobody waits for any more.
func (o *outcomes) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = nil
}

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
	at, ok := placeOf(f)
	if !ok {
		return nil, applyError(lost)
	}
	cfg := &b.g.cfg
	end := cfg.Clock.NewTimer(cfg.learn)
	defer end.Stop()
	for {
		applied := b.g.fsm.applied.Load() // before the look at what was made: that is noted first
		next := b.g.fsm.next()
		if results, ok := b.g.fsm.outcomes.of(at); ok {
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
func (in *instance) fateOf(at place, applied uint64) int {
	if in.raft.CommitIndex() < at.index {
		return undecided
	}
	var entry raft.Log
	switch err := in.stores.Log.GetLog(at.index, &entry); {
	case err == nil && entry.Term != at.term:
		return overwritten
	case err == nil && applied < at.index:
		return undecided // it is committed, and will be applied
	case err != nil && !errors.Is(err, raft.ErrLogNotFound):
		return swallowed
	case err != nil && applied < at.index:
		return undecided
	}
	return swallowed
}

// lostPlace reports whether an error of the library says that this server lost its place with the entry in its log.
func lostPlace(err error) bool { return errors.Is(err, raft.ErrLeadershipLost) }

var errResultsMissing = errkind.New(errkind.Unknown, "propose: outcome unknown: the results are missing")
