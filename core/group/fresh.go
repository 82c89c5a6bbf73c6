package group

import (
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// mark is what a leader tells with each message, heartbeats included, so that a
// follower can say how old its state is whatever the network does (docs/decisions/0004).
// It travels in a field of the message that the library does not use any more.
type mark struct {
	// number counts the leader's messages in its term.
	number uint64
	// echo is the number of the newest message to the same peer that was answered: this
	// message left later than that one arrived, a moment that the peer knows by its own clock.
	echo uint64
	// commit is the leader's commit index, read after echo; 0 while the leader may lack
	// what its predecessor committed.
	commit uint64
	// age is for how long no quorum had confirmed the leader when commit was read.
	age time.Duration
}

// markVersion cannot begin an address, which is what the field held before.
const markVersion = 1

func (m mark) encode() []byte {
	b := append(make([]byte, 0, 32), markVersion)
	for _, v := range []uint64{m.number, m.echo, m.commit, uint64(max(m.age, 0))} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func decodeMark(b []byte) (m mark, ok bool) {
	if len(b) == 0 || b[0] != markVersion {
		return m, false
	}
	b = b[1:]
	var age uint64
	for _, v := range []*uint64{&m.number, &m.echo, &m.commit, &age} {
		n := 0
		if *v, n = binary.Uvarint(b); n <= 0 {
			return m, false
		}
		b = b[n:]
	}
	m.age = time.Duration(min(age, math.MaxInt64))
	return m, true
}

// arrivalsKept bounds how many messages' arrivals a follower remembers: an echo
// that is older counts for nothing, which only makes the state look older.
const arrivalsKept = 64

// fresh knows as of when a follower's machine is complete: an instant at which the
// leader's commit index was complete, and the machine has by now everything up to it.
// The library's own last contact counts heartbeats, which a member answers while its
// log or its machine is far behind. And the moment at which a message arrives says
// nothing: the network, or a frozen process, may have held it back. So a message
// counts from the arrival of the newest earlier one whose answer the leader had.
// One pending index is enough: while it is not reached nothing newer is.
type fresh struct {
	// reached reports whether the machine has everything up to index.
	reached func(index uint64) bool
	term    func() uint64

	mu           sync.Mutex // guards what follows
	leaderTerm   uint64     // of the newest message; arrivals are of its leader
	arrivals     [arrivalsKept]arrival
	asOf         time.Time
	pendingIndex uint64 // 0 when none is pending
	pendingAt    time.Time
}

type arrival struct {
	number uint64
	at     time.Time
}

// heard notes a message of a leader.
func (f *fresh) heard(m *raft.AppendEntriesRequest, now time.Time) {
	//lint:ignore SA1019 the field that the library no longer reads carries the mark
	told, ok := decodeMark(m.Leader)
	if !ok || m.Term < f.term() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleLocked()
	if m.Term < f.leaderTerm {
		return
	}
	if m.Term > f.leaderTerm { // another leader, or another term: its numbers begin anew
		f.leaderTerm, f.arrivals = m.Term, [arrivalsKept]arrival{}
	}
	if slot := &f.arrivals[told.number%arrivalsKept]; told.number > slot.number {
		*slot = arrival{told.number, now}
	}
	known := f.arrivals[told.echo%arrivalsKept]
	if told.echo == 0 || known.number != told.echo || told.commit == 0 {
		return
	}
	at := known.at.Add(-told.age)
	switch {
	case f.pendingIndex != 0:
	case f.reached(told.commit):
		f.moveLocked(at)
	default:
		f.pendingIndex, f.pendingAt = told.commit, at
	}
}

// note says that the machine is complete as of an instant: a leader knows by itself.
func (f *fresh) note(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moveLocked(at)
}

func (f *fresh) moveLocked(at time.Time) {
	if at.After(f.asOf) {
		f.asOf = at
	}
}

func (f *fresh) settleLocked() {
	if f.pendingIndex != 0 && f.reached(f.pendingIndex) {
		f.moveLocked(f.pendingAt)
		f.pendingIndex = 0
	}
}

// at returns the instant, zero when there is none yet.
func (f *fresh) at() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleLocked()
	return f.asOf
}
