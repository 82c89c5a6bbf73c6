package member

import (
	"slices"
	"sync"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// Bounds of user events: gossip carries them in one packet with others.
const (
	MaxEventBytes  = 512 // of the payload
	keptEvents     = 256 // that a member remembers
	knownEvents    = 2048
	maxEventFields = 512 // identity, name and filters together: an event fits into one packet
)

// Event is a word that a user spreads to all members. LTime orders events of one
// member; events of several at one moment may have the same.
type Event struct {
	ID, Name                             string
	Payload                              []byte
	NodeFilter, ServiceFilter, TagFilter string // RE2; "" is any
	LTime                                uint64
}

func (e *Event) encode() []byte {
	b, mark := pack.Begin([]byte{kindEvent})
	b = pack.String(pack.String(pack.Uint(b, e.LTime), e.ID), e.Name)
	b = pack.String(pack.String(pack.String(b, e.NodeFilter), e.ServiceFilter), e.TagFilter)
	return pack.End(pack.Bytes(b, e.Payload), mark)
}

func decodeEvent(b []byte) (*Event, error) {
	r := pack.Read(b).Record()
	e := &Event{LTime: r.Uint(), ID: r.String(), Name: r.String(), NodeFilter: r.String(), ServiceFilter: r.String(),
		TagFilter: r.String()}
	e.Payload = slices.Clone(r.Bytes())
	if r.Err() != nil || e.ID == "" || e.check() != nil {
		return nil, errMessage
	}
	return e, nil
}

func (e *Event) check() error {
	if e.Name == "" {
		return errkind.New(errkind.Invalid, "an event needs a name")
	}
	if len(e.Payload) > MaxEventBytes {
		return errkind.Errorf(errkind.TooLarge, "user event exceeds sane limit of %d bytes before encoding", MaxEventBytes)
	}
	if len(e.ID)+len(e.Name)+len(e.NodeFilter)+len(e.ServiceFilter)+len(e.TagFilter) > maxEventFields {
		return errkind.Errorf(errkind.TooLarge, "the event's name and filters have more than %d bytes", maxEventFields)
	}
	return nil
}

// events are those that reached this member.
type events struct {
	mu      sync.Mutex
	clock   uint64   // Lamport's
	kept    []*Event // oldest first
	known   map[string]struct{}
	order   []string // of known, oldest first
	changed chan struct{}
	keep    func(*Event) bool // nil: all
}

func newEvents() *events {
	return &events{known: map[string]struct{}{}, changed: make(chan struct{})}
}

// KeepEvents says which events this member remembers; all are passed on. Call it before Run.
func (p *Pool) KeepEvents(keep func(*Event) bool) { p.events.keep = keep }

// FireEvent spreads an event, this member included, and returns it with its LTime.
func (p *Pool) FireEvent(e Event) (*Event, error) {
	if e.ID == "" {
		return nil, errkind.New(errkind.Invalid, "an event needs an ID")
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	p.events.mu.Lock()
	p.events.clock++
	e.LTime = p.events.clock
	p.events.mu.Unlock()
	p.hearEvent(&e)
	return &e, nil
}

// Events returns those remembered, oldest first, and a channel that is closed at the next one.
func (p *Pool) Events() ([]*Event, <-chan struct{}) {
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	return slices.Clone(p.events.kept), p.events.changed
}

// hearEvent remembers an event that is new and passes it on.
func (p *Pool) hearEvent(e *Event) {
	if !p.events.learn(e) {
		return
	}
	if p.events.keep == nil || p.events.keep(e) {
		p.events.add(e)
	}
	if p.queue.NumQueued() >= maxAnnouncements {
		p.queue.Prune(maxAnnouncements - 1)
	}
	p.queue.QueueBroadcast(&announcement{about: "event " + e.ID, msg: e.encode()})
}

// learn reports whether the event was not known yet.
func (v *events) learn(e *Event) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clock = max(v.clock, e.LTime)
	if _, ok := v.known[e.ID]; ok {
		return false
	}
	v.known[e.ID] = struct{}{}
	if v.order = append(v.order, e.ID); len(v.order) > knownEvents {
		delete(v.known, v.order[0])
		v.order = v.order[1:]
	}
	return true
}

func (v *events) add(e *Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.kept) == keptEvents {
		v.kept = append(v.kept[:0], v.kept[1:]...)
	}
	v.kept = append(v.kept, e)
	close(v.changed)
	v.changed = make(chan struct{})
}
