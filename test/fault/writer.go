package faultrun

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
)

// writer is one client of a ledger: it puts, deletes, registers, opens and closes
// sessions, and writes pairs of keys in transactions, on things of its own.
type writer struct {
	id      int
	ledger  *Ledger
	rng     *rand.Rand
	client  *Client
	servers []*Server
	Counter int
	slots   [slots]int // generation of each slot: a new one after an unknown outcome
	open    [slots]string
	// acks, when set, hears of each acknowledged write.
	Acks func()
	// Pace is the longest pause between two writes; zero means none.
	Pace time.Duration
}

const slots = 8

func newWriter(c *Cluster, l *Ledger, seed uint64, id int) *writer {
	w := &writer{id: id, ledger: l, rng: rand.New(rand.NewPCG(seed, uint64(id))), servers: c.Servers,
		client: NewClient(c.Servers[id%len(c.Servers)].HTTP)}
	w.client.Timeout = 2 * time.Second
	return w
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		outcome := w.write(ctx, w.rng.IntN(slots))
		switch {
		case outcome != history.OK:
			w.client.At(w.servers[w.rng.IntN(len(w.servers))].HTTP)
			_ = spawn.Sleep(ctx, 5*time.Millisecond)
		case w.Acks != nil:
			w.Acks()
		}
		if w.Pace > 0 {
			_ = spawn.Sleep(ctx, time.Duration(w.rng.Int64N(int64(w.Pace))))
		}
	}
}

// write does one thing to a slot. What a slot is follows from its number.
func (w *writer) write(ctx context.Context, slot int) history.Outcome {
	w.Counter++
	state := strconv.Itoa(w.id) + "." + strconv.Itoa(w.Counter)
	name := fmt.Sprintf("ledger/%d/%d/%d", w.id, slot, w.slots[slot])
	var outcome history.Outcome
	switch {
	case slot == 0:
		outcome = w.session(ctx, name, slot)
	case slot == 1:
		outcome = w.service(ctx, strings.ReplaceAll(name, "/", "-"), state)
	case slot == 2:
		outcome = w.both(ctx, name, state)
	case w.rng.IntN(4) == 0:
		r := w.client.Do(ctx, "DELETE", "/v1/kv/"+name, nil)
		outcome = r.Outcome
		w.settle(slot, outcome, Absent, kvThing+name)
	default:
		r := w.client.Do(ctx, "PUT", "/v1/kv/"+name, []byte(state))
		outcome = r.Outcome
		w.settle(slot, outcome, state, kvThing+name)
	}
	return outcome
}

func (w *writer) settle(slot int, outcome history.Outcome, state string, things ...string) {
	if !w.ledger.Note(outcome, state, things...) {
		w.slots[slot]++
		w.open[slot] = ""
	}
}

func (w *writer) both(ctx context.Context, name, state string) history.Outcome {
	a, b := name+"/a", name+"/b"
	_, r := w.client.txn(ctx, txnOp{txnKV{Verb: "set", Key: a, Value: []byte(state)}},
		txnOp{txnKV{Verb: "set", Key: b, Value: []byte(state)}})
	w.settle(2, r.Outcome, state, kvThing+a, kvThing+b)
	return r.Outcome
}

func (w *writer) service(ctx context.Context, id, state string) history.Outcome {
	if w.rng.IntN(4) == 0 {
		r := w.client.Do(ctx, "PUT", "/v1/catalog/deregister",
			fmt.Appendf(nil, `{"Node":"ledger-%d","ServiceID":%q}`, w.id, id))
		w.settle(1, r.Outcome, Absent, serviceThing+id)
		return r.Outcome
	}
	body := fmt.Appendf(nil, `{"Node":"ledger-%d","Address":"192.0.2.1","Service":{"ID":%q,"Service":"ledger",`+
		`"Port":80,"Meta":{"state":%q}}}`, w.id, id, state)
	r := w.client.Do(ctx, "PUT", "/v1/catalog/register", body)
	w.settle(1, r.Outcome, state, serviceThing+id)
	return r.Outcome
}

// session opens a session under a name of its own, or closes the one that is open. An
// unknown opening leaves one that nobody can close, so its name is never used again.
func (w *writer) session(ctx context.Context, name string, slot int) history.Outcome {
	thing := sessionThing + name
	if id := w.open[slot]; id != "" {
		r := w.client.Do(ctx, "PUT", "/v1/session/destroy/"+id, nil)
		w.settle(slot, r.Outcome, Absent, thing)
		if r.Outcome == history.OK {
			w.open[slot] = ""
			w.slots[slot]++
		}
		return r.Outcome
	}
	id, r := w.client.openSession(ctx, "clients", name)
	w.settle(slot, r.Outcome, "open", thing)
	if r.Outcome == history.OK {
		w.open[slot] = id
	}
	return r.Outcome
}

// Writers runs n of them until stop is called; stop returns when all have ended.
type Writers struct {
	List   []*writer
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func NewWriters(c *Cluster, l *Ledger, seed uint64, n int) *Writers {
	ws := &Writers{}
	for i := range n {
		ws.List = append(ws.List, newWriter(c, l, seed, i))
	}
	return ws
}

func (ws *Writers) Start(ctx context.Context) {
	ctx, ws.cancel = context.WithCancel(ctx)
	for _, w := range ws.List {
		ws.wg.Go(func() { w.run(ctx) })
	}
}

// Stop ends the load. Writes that are under way then have an unknown outcome.
func (ws *Writers) Stop() {
	if ws.cancel != nil {
		ws.cancel()
		ws.wg.Wait()
		ws.cancel = nil
	}
}

func (ws *Writers) Close() {
	ws.Stop()
	for _, w := range ws.List {
		w.client.Close()
	}
}
