package parts

import (
	"context"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/eventlog"
)

// The RPCs between leads and copies.
const (
	MethodPing   = "usage.ping"
	MethodStatus = "usage.part.status"
	MethodFeed   = "usage.part.feed"
	MethodRead   = "usage.part.read"
	MethodAnew   = "usage.part.anew"
	MethodWhole  = "usage.part.whole"
	MethodKeys   = "usage.part.keys"
	MethodYield  = "usage.part.yield"
	MethodLeaves = "usage.leaves"
)

// Methods are the RPCs that a server of the plane answers to other servers.
func (p *Parts) Methods() map[string]func(context.Context, []byte) ([]byte, error) {
	return map[string]func(context.Context, []byte) ([]byte, error){MethodStatus: p.serveStatus, MethodFeed: p.serveFeed,
		MethodRead: p.serveRead, MethodAnew: p.serveAnew, MethodWhole: p.serveWhole,
		MethodPing: p.servePing, MethodKeys: p.serveKeys, MethodYield: p.serveYield, MethodLeaves: p.serveLeaves}
}

// pinged is the last sign of life of who leads the plane, or led it.
type pinged struct {
	by string
	at time.Time
}

// servePing gives a sign of life: of a server that may take over what the table says. Who asks says who it is; a former
// version does not.
func (p *Parts) servePing(_ context.Context, req []byte) ([]byte, error) {
	if r := pack.Read(req); len(req) > 0 {
		by := r.String()
		if r.Err() != nil || len(by) > 100 {
			return nil, errkind.E(errkind.Invalid, MethodPing, r.Err())
		}
		p.pinged.Store(&pinged{by, p.cfg.Clock.Now()})
	}
	if p.draining.Load() {
		return nil, errDrains
	}
	if !p.settled.Load() {
		return nil, errkind.New(errkind.Unavailable, "usage: this server does not know yet what it has")
	}
	return pack.Bool(nil, p.leaving.Load()), nil // nobody but who leaves itself looks at it
}

// serveWhole notes that a copy has all that its lead has.
func (p *Parts) serveWhole(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	name, epoch := r.String(), r.Uint()
	if err := p.check(r.Err(), name); err != nil {
		return nil, err
	}
	t := p.find(name)
	if t == nil || t.now().Epoch > epoch {
		return nil, errNoPart
	}
	return nil, t.Counter.Share().SetWhole(ctx)
}

// status is what a server has of a part.
type status struct {
	first, next uint64
	sum         uint32 // of the last record
	anew        bool   // it was being made anew, and is not whole
	unpacks     bool   // it takes what is compressed; a former version does not
}

// ask asks a server for its status; it begins to have the part, if it has not.
func (t *part) ask(ctx context.Context, server string, epoch uint64) (s status, err error) {
	reply, err := t.call(ctx, server, MethodStatus, pack.Uint(pack.String(nil, t.name), epoch))
	if err != nil {
		return s, err
	}
	r := pack.Read(reply)
	s = status{first: r.Uint(), next: r.Uint(), sum: uint32(r.Uint()), anew: r.Bool()}
	if r.More() {
		s.unpacks = r.Bool()
	}
	return s, r.Err()
}

func (p *Parts) serveStatus(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	name, epoch := r.String(), r.Uint()
	if err := p.check(r.Err(), name); err != nil {
		return nil, err
	}
	now := p.cfg.Definitions.View().Part(name)
	if p.leaving.Load() && now.Lead != p.cfg.Self && now.Copy != p.cfg.Self {
		return nil, errDrains // it becomes no copy now
	}
	t, err := p.open(name)
	if err != nil {
		return nil, err
	}
	if t.now().Epoch <= epoch && t.Counter.Leads() {
		t.Counter.Share().Follow(epoch)
	}
	if !t.Counter.Leads() { // it may have been told so by the table, too, with an append under way
		if err := still(ctx, t); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	anew := t.paused
	t.mu.Unlock()
	if anew {
		return status{anew: true, unpacks: true}.append(nil), nil
	}
	bound, err := t.Counter.Share().Tail(ctx)
	if err != nil {
		return nil, err
	}
	sum, err := sumOf(ctx, t.Counter, bound.Next)
	if err != nil {
		return nil, err
	}
	return status{first: bound.First, next: bound.Next, sum: sum, unpacks: true}.append(nil), nil
}

// append writes what ask reads.
func (s status) append(b []byte) []byte {
	b = pack.Uint(pack.Uint(pack.Uint(b, s.first), s.next), uint64(s.sum))
	return pack.Bool(pack.Bool(b, s.anew), s.unpacks)
}

// check refuses what is no request about a part.
func (p *Parts) check(err error, name string) error {
	if err != nil || name == "" || len(name) > 100 || strings.ContainsAny(name, "/\\.\x00") {
		return errkind.Errorf(errkind.Invalid, "usage: a request about part %.60q is damaged", name)
	}
	return nil
}

var errNoPart = errkind.New(errkind.Unavailable, "usage: this server has nothing of that part")

func (p *Parts) serveFeed(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	name, epoch, from := r.String(), r.Uint(), r.Uint()
	list, err := records(r)
	if err = p.check(err, name); err != nil {
		return nil, err
	}
	t := p.find(name)
	if t == nil {
		return nil, errNoPart
	}
	loads := t.loads(ctx)
	next, err := t.Counter.Share().Feed(ctx, epoch, from, list)
	if err != nil {
		return nil, err
	}
	if loads && next > from {
		p.received(len(req))
	}
	return pack.Uint(nil, next), nil
}

// maxRecords bounds the records of a request.
const maxRecords = 1 << 16

func appendRecords(b []byte, list [][]byte) []byte {
	b = pack.Uint(b, uint64(len(list)))
	for _, d := range list {
		b = pack.Bytes(b, d)
	}
	return b
}

func records(r *pack.Reader) (list [][]byte, err error) {
	n := r.Count()
	if n > maxRecords {
		return nil, errkind.New(errkind.TooLarge, "usage: too many records at once")
	}
	for range n {
		list = append(list, append([]byte(nil), r.Bytes()...))
	}
	return list, r.Err()
}

func (p *Parts) serveRead(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	name, from, to := r.String(), r.Uint(), r.Uint()
	if err := p.check(r.Err(), name); err != nil {
		return nil, err
	}
	t := p.find(name)
	if t == nil {
		return nil, errNoPart
	}
	bound, err := t.Counter.Share().Tail(ctx)
	if err != nil {
		return nil, err
	}
	if from < bound.First || to > bound.Next {
		return nil, errkind.New(errkind.Invalid, "usage: there are no such records")
	}
	list, err := t.Counter.Share().Records(ctx, from, to, feedBytes)
	if err != nil {
		return nil, err
	}
	return appendRecords(nil, list), nil
}

// The steps in which a place is made anew.
const (
	anewBegin = iota + 1
	anewRecords
	anewState
	anewEnd
	anewPacked // one of the steps above, with all that belongs to it compressed
)

// arrival is a part that is being made anew.
type arrival struct {
	epoch uint64
	log   eventlog.Log
	state [][]byte // as it came: to join it would have it in memory twice
	size  uint64
}

// maxState bounds a state that arrives.
const maxState = 1 << 30

// serveAnew takes in a part from its lead. A server that the table names as lead or copy keeps what it has.
func (p *Parts) serveAnew(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	name, epoch, step := r.String(), r.Uint(), r.Uint()
	if err := p.check(r.Err(), name); err != nil {
		return nil, err
	}
	t := p.find(name)
	if t == nil {
		return nil, errNoPart
	}
	if now := t.now(); now.Lead == p.cfg.Self || now.Copy == p.cfg.Self || now.Epoch > epoch {
		return nil, errkind.Errorf(errkind.Conflict, "usage: part %s is not made anew at epoch %d: here it is at %d", name,
			epoch, now.Epoch)
	}
	if step == anewBegin {
		return nil, t.anewBegin(ctx, epoch, r)
	}
	t.mu.Lock()
	a := t.arrival
	t.mu.Unlock()
	if a == nil || a.epoch != epoch {
		return nil, errkind.New(errkind.Unavailable, "usage: the part is not being made anew")
	}
	p.received(r.Len())
	if step == anewPacked {
		inner, err := unpacked(r)
		if err != nil {
			return nil, err
		}
		r = pack.Read(inner)
		step = r.Uint()
	}
	switch step {
	case anewRecords:
		return nil, a.records(ctx, r)
	case anewState:
		from, piece := r.Uint(), r.Bytes()
		if r.Err() != nil || from != a.size || from+uint64(len(piece)) > maxState {
			return nil, errkind.New(errkind.Invalid, "usage: a piece of a state is damaged")
		}
		a.state, a.size = append(a.state, slices.Clone(piece)), a.size+uint64(len(piece))
		return nil, nil
	case anewEnd:
		return nil, t.anewEnd(ctx, a, r.Uint())
	}
	return nil, errkind.New(errkind.Invalid, "usage: an unknown step")
}

func (t *part) anewBegin(ctx context.Context, epoch uint64, r *pack.Reader) error {
	first := r.Uint()
	if r.Err() != nil {
		return errkind.E(errkind.Invalid, MethodAnew, r.Err())
	}
	t.pause()
	t.drop()
	log, err := t.Begin(ctx, first)
	if err != nil {
		t.resume()
		return err
	}
	t.mu.Lock()
	t.arrival = &arrival{epoch: epoch, log: log}
	t.mu.Unlock()
	t.p.cfg.Log.Info("usage: a copy of a part is made anew", "part", t.name, "from", first)
	return nil
}

// drop ends an arrival that its lead has given up.
func (t *part) drop() {
	t.mu.Lock()
	a := t.arrival
	t.arrival = nil
	t.mu.Unlock()
	if a == nil {
		return
	}
	if err := a.log.Close(); err != nil {
		t.p.cfg.Log.Warn("usage: the log of a part that was not made", "part", t.name, "error", err)
	}
}

func (a *arrival) records(ctx context.Context, r *pack.Reader) error {
	from := r.Uint()
	list, err := records(r)
	if err != nil {
		return errkind.E(errkind.Invalid, MethodAnew, err)
	}
	bounds, err := a.log.Bounds(ctx)
	if err != nil {
		return err
	}
	if bounds[0].Next != from || len(list) == 0 {
		return errkind.Errorf(errkind.Invalid, "usage: records from %d on do not follow on %d", from, bounds[0].Next)
	}
	entries := make([]eventlog.Entry, len(list))
	for i, d := range list {
		entries[i] = eventlog.Entry{Data: d}
	}
	_, err = a.log.Append(context.WithoutCancel(ctx), entries)
	return err
}

func (t *part) anewEnd(ctx context.Context, a *arrival, next uint64) error {
	bounds, err := a.log.Bounds(ctx)
	if err == nil && bounds[0].Next != next {
		err = errkind.Errorf(errkind.Invalid, "usage: the log ends at %d, not at %d", bounds[0].Next, next)
	}
	if err == nil {
		err = t.Save(ctx, a.state, next)
	}
	t.drop()
	t.resume()
	return err
}
