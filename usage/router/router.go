// Package router takes usage events from the doors: it checks each against its product, hashes it, and hands it to the
// counter that has its tenant and source, here or on another server.
//
// Which part of the log that is follows from the name of the producer, or of the tenant and source (rendezvous hashing
// over the parts), so that a batch that is sent again, even in other pieces, meets the memory that knows it, on
// whatever server the part is then. While a part has no lead, what such a memory knows waits for the next one, bounded
// in time and bytes; then, and for all else, senders are told to come again. Nothing is counted twice.
//
// A Router has no state beyond what was refused lately, and starts no goroutine that outlives a call. It is for any
// goroutine.
package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/route"
	"corbel.dev/corbel/usage/senders"
)

// MethodTake is the RPC by which a server hands events to another one.
const MethodTake = "usage.take"

// partBytes is about how large a record becomes; a larger batch is several.
const partBytes = 200 << 10

// Config of a Router.
type Config struct {
	Definitions *definitions.Definitions
	// Local is the counter of a part that this server leads; nil where another one does, which Call asks.
	Local func(part string) *counter.Counter
	// Await waits for a moment where this server is about to take a part's events; nil does not.
	Await func(ctx context.Context, part string)
	Call  func(ctx context.Context, part, method string, req []byte) ([]byte, error)
	// News returns once this server has all definitions that there were when it was called; nil takes it that it has.
	News func(ctx context.Context) error
	// Senders watches what comes; nil watches nothing.
	Senders *senders.Watch
	Clock   clock.Clock
	Metrics *telemetry.Registry
}

// Router is the owner. Make one with New.
type Router struct {
	cfg      Config
	rejected *telemetry.Counter
	mu       sync.Mutex   // guards refused
	refused  []Refused    // newest last
	held     atomic.Int64 // bytes of parts that wait for their owner
	early    atomic.Int64 // events that wait until this server knows the definitions
}

// Refused is an event that was rejected lately.
type Refused struct {
	Tenant, Source, ID string
	At                 time.Time
	Error              string
	// Product is what it was to be counted as, and Time its own: zero is At.
	Product string
	Time    int64
}

const maxRefused = 1000

// New makes a Router.
func New(cfg Config) *Router {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Await == nil {
		cfg.Await = func(context.Context, string) {}
	}
	if cfg.News == nil {
		cfg.News = func(context.Context) error { return nil }
	}
	if cfg.Senders == nil {
		cfg.Senders = senders.New(1)
	}
	return &Router{cfg: cfg, rejected: cfg.Metrics.Counter("usage.events.rejected")}
}

// Senders watches what comes.
func (r *Router) Senders() *senders.Watch { return r.cfg.Senders }

// Batch is what a sender sends at once.
type Batch struct {
	// Producer is empty for a batch whose events have ids instead.
	Producer        string
	Epoch, Sequence uint64
	Items           []cloudevents.Item
}

// Rejected names an event that is wrong.
type Rejected struct {
	Index int    `json:"index"`
	Error string `json:"error"`
}

// Answer says what became of a batch: each event is accepted, a duplicate, late or rejected.
type Answer struct {
	Accepted   int        `json:"accepted"`
	Duplicates int        `json:"duplicates"`
	Late       int        `json:"late,omitempty"`
	Rejected   []Rejected `json:"rejected,omitempty"`
	Receipt    string     `json:"receipt,omitempty"`
}

// part is what one record will have.
type part struct {
	owner    string
	intake   counter.Intake
	indices  []int // of the events in the batch
	bytes    int
	verdicts counter.Verdicts
	err      error
}

// Take checks the events and stores those that are right. After an error nothing is known of some of them: the sender
// sends the whole batch again, and what was stored is told as duplicates.
func (r *Router) Take(ctx context.Context, b *Batch) (Answer, error) {
	var out Answer
	r.begin(ctx, len(b.Items))
	if r.lacks(b) {
		if err := r.cfg.News(ctx); err != nil {
			return out, err
		}
	}
	parts, err := r.sort(b, &out)
	if err != nil {
		return out, err
	}
	var wg sync.WaitGroup
	for _, p := range parts[min(1, len(parts)):] {
		wg.Go(func() { r.store(ctx, p) })
	}
	if len(parts) > 0 {
		r.store(ctx, parts[0])
	}
	wg.Wait()
	var failed []error
	for _, p := range parts {
		if p.err != nil {
			failed = append(failed, p.err)
			continue
		}
		r.tell(&out, p)
	}
	slices.SortFunc(out.Rejected, func(a, b Rejected) int { return cmp.Compare(a.Index, b.Index) })
	if len(failed) > 0 {
		return out, failed[0]
	}
	return out, nil
}

// A server that has just started waits for beginLimit at most until it knows the definitions, with so many events.
const (
	beginLimit = 3 * time.Second
	beginMost  = 50_000
)

// begin waits, after a start, until it is known what is counted and by whom.
func (r *Router) begin(ctx context.Context, events int) {
	known := func(v *definitions.View) bool { return v.Key != nil && len(v.Owners) > 0 }
	if known(r.cfg.Definitions.View()) {
		return
	}
	defer r.early.Add(int64(-events))
	if r.early.Add(int64(events)) > beginMost {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beginLimit)
	defer cancel()
	_ = r.cfg.Definitions.Await(ctx, known) // who takes the events says what is still missing
}

// lacks reports whether this server does not know a product of a batch: then it may only be behind the others.
func (r *Router) lacks(b *Batch) bool {
	products, last := r.cfg.Definitions.View().Products, ""
	for i := range b.Items {
		item := &b.Items[i]
		if item.Err != nil || item.Product == last {
			continue
		}
		if _, ok := products.Get(item.Product); !ok {
			return true
		}
		last = item.Product
	}
	return false
}

// sort makes the records of a batch, by owner, and rejects what is wrong.
func (r *Router) sort(b *Batch, out *Answer) ([]*part, error) {
	view := r.cfg.Definitions.View()
	key, err := view.HashKey()
	if err != nil {
		return nil, err
	}
	if len(b.Producer) > usage.MaxNameBytes-16 {
		return nil, errkind.Errorf(errkind.Invalid, "producer: has more than %d bytes", usage.MaxNameBytes-16)
	}
	now, owners := r.cfg.Clock.Now(), view.Owners
	if len(owners) == 0 {
		return nil, errkind.New(errkind.Unavailable, "usage: it is not settled yet which servers count: send the "+
			"events again")
	}
	open := map[string]*part{} // the last part of each owner
	var parts []*part
	var buf []byte
	var observed usage.Observation
	watched := r.cfg.Senders.Begin(now)
	defer watched.End()
	for i := range b.Items {
		item := &b.Items[i]
		err := item.Err
		var p *usage.Product
		if err == nil {
			var ok bool
			if p, ok = view.Products.Get(item.Product); !ok {
				err = usage.Wrong("product", "%.100q is not defined: PUT /v1/usage/products/%.100s", item.Product, item.Product)
			}
		}
		if err == nil {
			watched.Saw(b.Producer, &item.Event)
			observed, buf, err = p.Observe(key, &item.Event, now, buf)
		}
		if err != nil {
			r.reject(out, i, &item.Event, err)
			continue
		}
		watched.Counts(p, &item.Event)
		owner := r.owner(b.Producer, observed.Tenant, item.Source, owners)
		to := open[owner]
		if to == nil || to.bytes > partBytes {
			to = &part{owner: owner, intake: counter.Intake{Tenant: observed.Tenant, Record: &logrecord.Record{At: now}}}
			open[owner], parts = to, append(parts, to)
		}
		to.add(i, &item.Event, observed)
	}
	if b.Producer != "" {
		for i, p := range parts {
			rec := p.intake.Record
			rec.Producer, rec.Epoch, rec.Sequence = b.Producer, b.Epoch, b.Sequence
			if i > 0 {
				rec.Producer += "\x00" + strconv.Itoa(i)
			}
		}
	}
	return parts, nil
}

func (p *part) add(index int, e *usage.Event, o usage.Observation) {
	rec := p.intake.Record
	if rec.Product(e.Product) == nil {
		rec.Products = append(rec.Products, o.Product)
	}
	rec.Events = append(rec.Events, *e)
	p.intake.Observed = append(p.intake.Observed, o)
	p.indices = append(p.indices, index)
	p.bytes += 32 + len(e.ID) + len(e.Source)
	for _, list := range [...][]usage.Field{e.Identity, e.Tags} {
		for _, f := range list {
			p.bytes += 8 + len(f.Name) + len(f.Value)
		}
	}
}

// Part is the part of the log that has the events of a tenant and source which came in no numbered batch.
func (r *Router) Part(tenant, source string) string {
	owners := r.cfg.Definitions.View().Owners
	if len(owners) == 0 {
		return ""
	}
	return r.owner("", tenant, source, owners)
}

// owner is which part counts an event.
func (r *Router) owner(producer, tenant, source string, members []string) string {
	if len(members) == 1 {
		return members[0]
	}
	if producer != "" {
		tenant, source = "\x00producer", producer
	}
	list := make([]route.Member, len(members))
	for i, name := range members {
		list[i] = route.Member{Name: name}
	}
	return route.Rank(route.Partition(tenant, source, usage.Shards), list)
}

func (r *Router) reject(out *Answer, index int, e *usage.Event, err error) {
	out.Rejected = append(out.Rejected, Rejected{index, err.Error()})
	r.rejected.Add(1)
	if e.ID == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refused) >= maxRefused {
		r.refused = slices.Delete(r.refused, 0, maxRefused/2)
	}
	r.refused = append(r.refused, Refused{Tenant: cmp.Or(e.Tenant, usage.DefaultTenant), Source: e.Source, ID: e.ID,
		At: r.cfg.Clock.Now(), Error: err.Error(), Product: e.Product, Time: e.Time})
}

// Rejected lists the events that were rejected here lately and that a query takes, the newest first.
func (r *Router) Rejected(q *counter.RecentQuery) (list []Refused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range slices.Backward(r.refused) {
		if f.ID = q.EventID(f.ID, f.Product); len(list) < q.Most && q.Takes(f.Tenant, f.ID, f.EventTime(), f.At) {
			list = append(list, f)
		}
	}
	return list
}

// EventTime is the event's own time.
func (f *Refused) EventTime() time.Time {
	if f.Time == 0 {
		return f.At
	}
	return time.Unix(0, f.Time)
}

// WhyRefused tells whether an event was rejected here lately.
func (r *Router) WhyRefused(tenant, source, id string) (Refused, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range slices.Backward(r.refused) {
		if f.Tenant == tenant && f.Source == source && f.ID == id {
			return f, true
		}
	}
	return Refused{}, false
}

// A part whose owner is away waits, for the copy takes over meanwhile: for at most holdLimit, and all of them together
// have no more than holdBytes. retryFirst and retryMost are the pauses between tries; one follows at once where it is
// decided anew who owns it.
const (
	holdLimit  = 8 * time.Second
	holdBytes  = 32 << 20
	retryFirst = 10 * time.Millisecond
	retryMost  = 100 * time.Millisecond
)

// store has the owner of a part store it, or who owns it next. What may be sent again without being counted twice waits
// for that here, so that its sender does not notice: what a counter knows again, or what its owner says it has not.
func (r *Router) store(ctx context.Context, p *part) {
	defer func() {
		if errkind.Is(p.err, errkind.NotLeader) {
			p.err = errkind.E(errkind.Unavailable, "usage: nobody counts these events now", p.err)
		}
	}()
	changed := r.cfg.Definitions.Changed()
	if r.hand(ctx, p); !p.again() {
		return
	}
	defer r.held.Add(int64(-p.bytes))
	if r.held.Add(int64(p.bytes)) > holdBytes {
		return
	}
	pause := backoff.Backoff{Min: retryFirst, Max: retryMost}
	for began := r.cfg.Clock.Now(); r.cfg.Clock.Since(began) < holdLimit; {
		t := r.cfg.Clock.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-changed:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return
		}
		changed = r.cfg.Definitions.Changed()
		if r.hand(ctx, p); !p.again() {
			return
		}
	}
}

// known says whether a counter tells this part when it comes again.
func (p *part) known() bool {
	rec := p.intake.Record
	return rec.Producer != "" || !slices.ContainsFunc(rec.Events, func(e usage.Event) bool { return e.ID == "" })
}

// again says whether a part may be handed over once more.
func (p *part) again() bool {
	return errkind.Is(p.err, errkind.NotLeader) || errkind.Is(p.err, errkind.Unavailable) && p.known()
}

// hand hands a part to its owner, once.
func (r *Router) hand(ctx context.Context, p *part) {
	p.verdicts, p.err = counter.Verdicts{}, nil
	if local := r.cfg.Local(p.owner); local != nil {
		r.cfg.Await(ctx, p.owner)
		p.verdicts, p.err = local.Take(ctx, p.intake)
		return
	}
	reply, err := r.cfg.Call(ctx, p.owner, MethodTake, logrecord.Append(nil, p.intake.Record))
	if err != nil {
		switch errkind.Of(err) {
		case errkind.Overloaded, errkind.TooLarge, errkind.Invalid, errkind.NotLeader:
			p.err = err
			return
		}
		p.err = errkind.E(errkind.Unavailable, "usage: the server that counts these events does not answer", err)
		return
	}
	rd := pack.Read(reply)
	p.verdicts.Offset = rd.Uint()
	for _, v := range rd.Bytes() {
		p.verdicts.Of = append(p.verdicts.Of, dedup.Verdict(v))
	}
	if rd.Err() != nil || len(p.verdicts.Of) != len(p.indices) {
		p.err = errkind.New(errkind.Internal, "usage: the answer of another server is damaged")
	}
}

// Serve answers MethodTake, for the counter of a part.
func (r *Router) Serve(ctx context.Context, c *counter.Counter, req []byte) ([]byte, error) {
	var decoder logrecord.Reader
	rec, err := decoder.Read(req)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, MethodTake, err)
	}
	key, err := r.cfg.Definitions.View().HashKey()
	if err != nil {
		return nil, err
	}
	observed, err := rec.Observe(key)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, MethodTake, err)
	}
	if len(observed) == 0 || rec.Correction != nil {
		return nil, errkind.New(errkind.Invalid, "usage.take: no events")
	}
	got, err := c.Take(ctx, counter.Intake{Tenant: observed[0].Tenant, Record: rec, Observed: observed})
	if err != nil {
		return nil, err
	}
	verdicts := make([]byte, len(got.Of))
	for i, v := range got.Of {
		verdicts[i] = byte(v)
	}
	return pack.Bytes(pack.Uint(nil, got.Offset), verdicts), nil
}

var errFull = errors.New("too many ids are remembered at once: send the event again in a minute, or raise " +
	"usage.state.ids")

func (r *Router) tell(out *Answer, p *part) {
	if out.Receipt == "" {
		out.Receipt = fmt.Sprintf("%s/%d", p.owner, p.verdicts.Offset)
	}
	for i, v := range p.verdicts.Of {
		switch v {
		case dedup.New:
			out.Accepted++
		case dedup.Duplicate:
			out.Duplicates++
		case dedup.Late:
			out.Late++
		default:
			out.Rejected = append(out.Rejected, Rejected{p.indices[i], Refusal(v)})
		}
	}
}

// Refusal is what the sender of an event is told that was not accepted.
func Refusal(v dedup.Verdict) string {
	switch v {
	case dedup.Full:
		return errFull.Error()
	case dedup.Fenced:
		return "epoch: a newer one of this producer is known"
	}
	return "sequence: is so far behind the newest one that nobody can tell whether it was counted, or is 0"
}
