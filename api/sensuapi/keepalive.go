package sensuapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"math/rand/v2"
	"sync"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/frame"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/objects"
)

// Nearly all keepalives of a session say what the one before said, at another time. So a session remembers a keyed
// digest of what it took and validated last; what has the same digest is passed on as it came, with its check put in
// from what all agents with the same settings share. Everything else is decoded.

// beats is what a session remembers of its keepalives.
type beats struct {
	digest uint64
	check  []byte // the check's stable part as it is stored, shared; nil is that each keepalive is to be decoded
}

// beatChecks shares checks of keepalives among sessions.
type beatChecks struct {
	seed maphash.Seed
	mu   sync.Mutex
	all  map[string][]byte
}

// beatsMost bounds what is shared: agents differ in intervals and timeouts, seldom in more.
const beatsMost = 1024

func (x *beatChecks) of(stable []byte) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.all[string(stable)]; c != nil {
		return c
	}
	if x.all == nil || len(x.all) >= beatsMost {
		x.all = map[string][]byte{}
	}
	c := bytes.Clone(stable)
	x.all[string(c)] = c
	return c
}

// digest is of all that a keepalive says but times and numbers.
func (x *beatChecks) digest(f *frame.Frame) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	for _, part := range [...][]byte{f.Parts.Head, f.Parts.Tail, f.Stable, f.Rest} {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
		_, _ = h.Write(n[:])
		_, _ = h.Write(part)
	}
	return h.Sum64()
}

// beat is what taking a keepalive needs for a moment.
type beat struct {
	frame, stored frame.Frame
	text, event   []byte
}

var beatPool = sync.Pool{New: func() any { return new(beat) }}

// keepalive takes a sign of life: it makes the agent's entity when there is none, and is a result of the check
// keepalive.
func (s *session) keepalive(ctx context.Context, payload []byte) error {
	if s.beats.check == nil && !s.agents.knows(&s.Session) {
		if err := s.agents.open(ctx); err != nil {
			return err
		}
		defer func() { <-s.agents.opening }()
	}
	if s.JSON {
		e := new(monitor.Event)
		if err := json.Unmarshal(payload, e); err != nil {
			return errkind.E(errkind.Invalid, hub.KindKeepalive, err)
		}
		_, err := s.whole(ctx, e, nil)
		return err
	}
	b := beatPool.Get().(*beat)
	defer beatPool.Put(b)
	f := &b.frame
	if err := f.Cut(payload); err != nil {
		return errkind.E(errkind.Invalid, hub.KindKeepalive, err)
	}
	digest := s.agents.beats.digest(f)
	plain := f.HasCheck && f.Timestamp != 0 && f.Duration == 0 && len(f.Hooks) == 0 && f.Metrics == nil
	if plain && s.beats.check != nil && digest == s.beats.digest && f.Sequence != 1 && s.agents.knows(&s.Session) {
		return s.again(ctx, b)
	}
	e := new(monitor.Event)
	if err := tagproto.Unmarshal(payload, e); err != nil {
		return errkind.E(errkind.Invalid, hub.KindKeepalive, err)
	}
	s.beats = beats{}
	var err error
	if b.event, err = s.whole(ctx, e, b.event[:0]); err != nil {
		return err
	}
	// What was stored is what came, byte for byte, but for the check? Then the next one need not be decoded.
	if plain && b.stored.Cut(b.event) == nil && bytes.Equal(b.stored.Rest, f.Rest) && sameHost(&b.stored, f) {
		s.beats = beats{digest, s.agents.beats.of(b.stored.Stable)}
	}
	return nil
}

// open waits for its turn to make an entity.
func (a *Agents) open(ctx context.Context) error {
	select {
	case a.opening <- struct{}{}:
		return nil
	default: // only who waits asks for Done (ws.Loop)
	}
	select {
	case a.opening <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errkind.E(errkind.Overloaded, "keepalive: too many agents are new", ctx.Err())
	}
}

// sameHost compares the entities of two keepalives, but for the time at which they were seen last.
func sameHost(a, b *frame.Frame) bool {
	return bytes.Equal(a.Parts.Head, b.Parts.Head) && bytes.Equal(a.Parts.Tail, b.Parts.Tail)
}

// again passes on a keepalive that says what the one before said.
func (s *session) again(ctx context.Context, b *beat) error {
	f := &b.frame
	f.Status, f.Executed, f.Issued = 0, f.Timestamp, f.Timestamp
	binary.LittleEndian.PutUint64(f.ID[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(f.ID[8:], rand.Uint64())
	// a random UUID, as others are; nobody need be unable to guess it
	f.ID[6], f.ID[8] = f.ID[6]&0x0f|0x40, f.ID[8]&0x3f|0x80
	b.text = append(monitor.AppendKeepaliveOutput(b.text[:0], s.Agent, f.Timestamp), s.Agent...)
	at := len(b.text) - len(s.Agent)
	f.Output, f.ProcessedBy = b.text[:at], b.text[at:]
	f.Stable = s.beats.check
	b.event = f.Append(b.event[:0])
	return s.agents.cfg.Events.Frame(ctx, s.Namespace, b.event)
}

// whole takes a keepalive that was decoded, and appends the event that it became to b.
func (s *session) whole(ctx context.Context, e *monitor.Event, b []byte) ([]byte, error) {
	if e.Timestamp == 0 {
		return b, errkind.Errorf(errkind.Invalid, "keepalive: timestamp is 0")
	}
	if e.Entity == nil || e.Check == nil {
		return b, errkind.Errorf(errkind.Invalid, "keepalive: entity or check is missing")
	}
	if e.Entity.Name != s.Agent {
		return b, errkind.Errorf(errkind.Invalid, "keepalive: it is of %q, and the session of %q", e.Entity.Name, s.Agent)
	}
	e.Entity.Namespace = s.Namespace
	if e.Entity.Class == "" {
		e.Entity.Class = monitor.ClassAgent
	}
	if err := e.Entity.Validate(); err != nil {
		return b, errkind.E(errkind.Invalid, "keepalive", err)
	}
	if err := s.register(ctx, e); err != nil {
		return b, err
	}
	id := uuid.New()
	e.ID = id[:]
	c := e.Check
	c.Name, c.Namespace = monitor.KeepaliveCheck, s.Namespace
	c.Status, c.Executed, c.Issued, c.ProcessedBy = 0, e.Timestamp, e.Timestamp, s.Agent
	c.Output = string(monitor.AppendKeepaliveOutput(nil, s.Agent, e.Timestamp))
	c.Handlers = e.Entity.KeepaliveHandlers
	if len(c.Handlers) == 0 {
		c.Handlers = []string{monitor.KeepaliveCheck}
	}
	b = tagproto.Append(b, e)
	return b, s.agents.cfg.Events.Frame(ctx, s.Namespace, b)
}

// register stores the configuration of an entity that is new, or that its agent manages. One that has an agent is of
// the class agent, whatever somebody made it.
func (s *session) register(ctx context.Context, e *monitor.Event) error {
	a := s.agents
	own := e.Entity.Labels[managedBy] == managedByAgent && !s.managed && e.Sequence == 1
	stored := a.cfg.Resources.View().Get("entities", s.Namespace, s.Agent)
	c, _ := monitor.Split(e.Entity)
	op := objects.Op{Verb: objects.Put, Type: "entities", Namespace: s.Namespace, Name: s.Agent}
	switch {
	case stored == nil:
		op.Verb = objects.Create
	case own:
	default:
		kept := *stored.Object().(*monitor.EntityConfig)
		if kept.Class == monitor.ClassAgent {
			return nil
		}
		c, op.If = &kept, stored.Index // if somebody changes it meanwhile, another keepalive looks again
	}
	c.Class = monitor.ClassAgent
	op.Encoded = tagproto.Append(nil, c)
	if err := a.cfg.Resources.Write(ctx, op); err != nil && !errkind.Is(err, errkind.Conflict) {
		return err
	}
	s.managed = s.managed || own
	if stored != nil {
		return nil
	}
	return a.cfg.Events.Announce(&monitor.Event{
		Timestamp: e.Timestamp, Entity: e.Entity,
		Check: &monitor.Check{Meta: monitor.Meta{Name: "registration", Namespace: s.Namespace}, Interval: 1, Status: 1,
			Issued: e.Timestamp, Executed: e.Timestamp, Handlers: []string{"registration"}},
	})
}
