package shardrouter

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/shards"
)

// all gathers a list.
func (s *server) all(t *testing.T, r ingest.Range) (list []ingest.Place, err error) {
	t.Helper()
	for p, failed := range s.List(t.Context(), r) {
		if failed != nil {
			return list, failed
		}
		list = append(list, p.At())
	}
	return list, nil
}

// counted is what servers asked each other.
type counted struct{ calls, bytes atomic.Int64 }

func (n *counted) count(cfg *Config) {
	call := cfg.Call
	cfg.Call = func(ctx context.Context, addr, method string, req []byte) ([]byte, error) {
		reply, err := call(ctx, addr, method, req)
		if method == methodAsk {
			n.calls.Add(1)
			n.bytes.Add(int64(len(reply)))
		}
		return reply, err
	}
}

// settled reports whether all that servers took is stored: what is not may be lost with a server, and no replica has
// it.
func (c *cluster) settled() bool {
	for _, s := range c.servers {
		for shard := range uint16(shards.Count) {
			if !s.in.Settled(shard) {
				return false
			}
		}
	}
	return true
}

// listed is a cluster with events of some checks on many entities in two namespaces, and their places in order.
func listed(t *testing.T, entities int) (*cluster, *counted, []ingest.Place) {
	t.Helper()
	n := &counted{}
	c := newCluster(t, 3, n.count)
	c.even(t, 3)
	var want []ingest.Place
	for _, namespace := range []string{"default", "other"} {
		for e := range entities {
			for check := range 1 + e%3 {
				at := ingest.Place{Namespace: namespace, Entity: fmt.Sprintf("e%04d", e), Check: fmt.Sprint("c", check)}
				frame := tagproto.Append(nil, &monitor.Event{Timestamp: 100,
					Entity: &monitor.Entity{Meta: monitor.Meta{Name: at.Entity, Namespace: namespace}, Class: monitor.ClassAgent,
						System: monitor.System{Hostname: at.Entity}},
					Check: &monitor.Check{Meta: monitor.Meta{Name: at.Check, Namespace: namespace}, Interval: 10, Executed: 100,
						Issued: 100}})
				if err := c.servers[e%3].Frame(t.Context(), namespace, frame); err != nil {
					t.Fatal(err)
				}
				want = append(want, at)
			}
		}
	}
	polltest.Until(t, func() bool {
		list, err := c.servers[0].all(t, ingest.Range{})
		return err == nil && len(list) == len(want)
	}, "all events to have arrived")
	n.calls.Store(0)
	n.bytes.Store(0)
	return c, n, want
}

// TestListInPages: a list costs one call for each page of each other server, however many entities these have, and is
// in order.
func TestListInPages(t *testing.T) {
	c, n, want := listed(t, 600)
	for _, bytes := range []int{pageBytes, 32 << 10} {
		for _, s := range c.servers {
			s.pageBytes = bytes
		}
		n.calls.Store(0)
		n.bytes.Store(0)
		if list, err := c.servers[1].all(t, ingest.Range{}); err != nil || !slices.Equal(list, want) {
			t.Errorf("%d events of %d: %v", len(list), len(want), err)
		}
		if calls, most := n.calls.Load(), 2+n.bytes.Load()/int64(bytes); calls > most || bytes < pageBytes && calls < 6 {
			t.Errorf("%d calls in pages of %d bytes for %d bytes, want at most %d", calls, bytes, n.bytes.Load(), most)
		}
	}
	for _, from := range []int{0, 1, 2, 700, 1198, len(want) - 2, len(want) - 1} {
		if list, err := c.servers[2].all(t, ingest.Range{After: want[from]}); err != nil ||
			!slices.Equal(list, want[from+1:]) {
			t.Errorf("behind %v: %d events of %d: %v", want[from], len(list), len(want)-from-1, err)
		}
	}
	of := func(keep func(ingest.Place) bool) (some []ingest.Place) {
		for _, p := range want {
			if keep(p) {
				some = append(some, p)
			}
		}
		return some
	}
	for _, r := range []ingest.Range{{Namespace: "other"}, {Namespace: "default", Check: "c2"}, {Check: "c1", Most: 3},
		{Namespace: "none"}, {Most: 1, After: want[1150]}} {
		some := of(func(p ingest.Place) bool {
			return (r.Namespace == "" || p.Namespace == r.Namespace) && (r.Check == "" || p.Check == r.Check) &&
				p.Compare(r.After) > 0
		})
		if list, err := c.servers[0].all(t, r); err != nil || !slices.Equal(list, some) {
			t.Errorf("%+v: %d events of %d: %v", r, len(list), len(some), err)
		}
	}
	n.calls.Store(0)
	taken := 0
	for _, err := range c.servers[0].List(t.Context(), ingest.Range{Most: 11}) {
		if taken++; err != nil || taken == 11 {
			break
		}
	}
	if n.calls.Load() != 2 || taken != 11 {
		t.Errorf("%d calls for a page of %d", n.calls.Load(), taken)
	}
}

// TestEntityStatesTogether: many entities cost one call to each server, or as many as their answers take.
func TestEntityStatesTogether(t *testing.T) {
	c, n, want := listed(t, 600)
	var names []ingest.EntityName
	for _, p := range want {
		if p.Check == "c0" {
			names = append(names, ingest.EntityName{Namespace: p.Namespace, Name: p.Entity})
		}
	}
	names[3] = ingest.EntityName{Namespace: "default", Name: "none"}
	for _, bytes := range []int{pageBytes, 4 << 10} {
		for _, s := range c.servers {
			s.pageBytes = bytes
		}
		n.calls.Store(0)
		n.bytes.Store(0)
		states, err := c.servers[1].EntityStates(t.Context(), names)
		if err != nil || len(states) != len(names) {
			t.Fatal(len(states), err)
		}
		for i, state := range states {
			if i == 3 && state != nil || i != 3 && (state == nil || state.System.Hostname != names[i].Name) {
				t.Fatalf("%v: %+v", names[i], state)
			}
		}
		if calls, most := n.calls.Load(), 2+n.bytes.Load()/int64(bytes); calls > most {
			t.Errorf("%d calls for %d bytes, want at most %d", calls, n.bytes.Load(), most)
		}
	}
}

// TestListWhileAServerDies: a list that began goes on with the replicas, and is whole; one that cannot wait for them
// ends with who is missing.
func TestListWhileAServerDies(t *testing.T) {
	c, _, want := listed(t, 200)
	polltest.Until(t, c.settled, "everything to be stored")
	polltest.Until(t, c.replicated, "the replicas to have everything")
	for _, s := range c.servers {
		s.pageBytes = 2 << 10
	}
	var list []ingest.Place
	for p, err := range c.servers[1].List(t.Context(), ingest.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if list = append(list, p.At()); len(list) != 50 {
			continue
		}
		c.servers[0].kill()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		var last error
		for _, last = range c.servers[2].List(ctx, ingest.Range{}) {
		}
		if !errkind.Is(last, errkind.Unavailable) {
			t.Errorf("without a server the list ends with %v", last)
		}
		cancel()
	}
	if !slices.Equal(list, want) {
		t.Errorf("%d events of %d", len(list), len(want))
	}
}
