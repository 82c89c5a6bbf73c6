package statsdapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/router"
)

// taken is a router that refuses its first batch.
type taken struct {
	mu      sync.Mutex
	refused bool
	first   uint64 // its sequence
	sum     map[string]string
	events  int
}

func (k *taken) take(_ context.Context, b *router.Batch) (router.Answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.refused {
		k.refused, k.first = true, b.Sequence
		return router.Answer{}, errors.New("full")
	}
	if k.first != 0 && b.Sequence != k.first {
		return router.Answer{}, errors.New("another batch before the one that was refused")
	}
	k.first = 0
	for i := range b.Items {
		e := &b.Items[i].Event
		k.events++
		k.sum[e.Tenant+"/"+e.Product] += e.Value.String() + ";"
	}
	return router.Answer{Accepted: len(b.Items)}, nil
}

// TestDoor: datagrams of both sockets are added up, survive a refusal, and hostile ones do no harm.
func TestDoor(t *testing.T) {
	k := &taken{sum: map[string]string{}}
	socket := filepath.Join(t.TempDir(), "statsd.sock")
	kinds := map[string]usage.Kind{"calls": usage.Sum, "users": usage.Unique}
	d, err := Open(Config{Address: "127.0.0.1:0", Socket: socket, Producer: "test", Take: k.take, Clock: clock.Real{},
		Log:  slog.New(slog.DiscardHandler),
		Kind: func(p string) (usage.Kind, bool) { kind, ok := kinds[p]; return kind, ok }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	for _, to := range []net.Addr{d.Addr(), &net.UnixAddr{Name: socket, Net: "unixgram"}} {
		c, err := net.Dial(to.Network(), to.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, packet := range []string{"calls:2|c|#tenant:acme\ncalls:3|c|#tenant:acme", "calls:1|c|@0.1|#tenant:acme",
			"users:bob|s|#tenant:acme\nusers:bob|s|#tenant:acme", "unknown:1|c", "\xff\x00", "calls:|c", "calls:1e999|c"} {
			if _, err := c.Write([]byte(packet)); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.Close()
	}
	polltest.Until(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		total := usage.Quantity{}
		for _, text := range splitSums(k.sum["acme/calls"]) {
			total, _ = total.Add(text)
		}
		return total == usage.Int(30) && k.sum["acme/users"] != ""
	}, "30 calls and a user")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWaitsForProducts: what comes while it is not known yet which products there are is counted all the same.
func TestWaitsForProducts(t *testing.T) {
	k := &taken{sum: map[string]string{}, refused: true}
	var known atomic.Bool
	asked := 0
	d, err := Open(Config{Address: "127.0.0.1:0", Producer: "test", Take: k.take, Clock: clock.Real{},
		Log:  slog.New(slog.DiscardHandler),
		Kind: func(string) (usage.Kind, bool) { return usage.Sum, known.Load() },
		Ready: func(context.Context) error {
			if asked++; asked == 1 {
				return errors.New("nobody leads")
			}
			known.Store(true)
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("calls:7|c|#tenant:acme")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	polltest.Until(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.sum["acme/calls"] == "7;"
	}, "7 calls")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWaitEnds: where nobody tells the products, datagrams are taken, and rejected, after a while.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Door{cfg: Config{Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler),
			Ready: func(context.Context) error { return errors.New("nobody leads") }}}
		begin := time.Now()
		d.await(t.Context())
		if took := time.Since(begin); took != readyLimit {
			t.Errorf("it waited for %s", took)
		}
	})
}

// TestFloodLeavesRoom: what one tenant sends between two batches leaves room to the others.
func TestFloodLeavesRoom(t *testing.T) {
	d, err := Open(Config{Kind: func(string) (usage.Kind, bool) { return usage.Unique, true }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range MaxEntries / 2 {
		one := []usage.Field{{Name: "u", Value: fmt.Sprint(i)}}
		d.add([]usage.Event{{Tenant: "flood", Product: "users", Identity: one}})
	}
	d.add([]usage.Event{{Tenant: "quiet", Product: "users", Identity: []usage.Field{{Name: "u", Value: "bob"}}}})
	if d.tenants["flood"] != MaxEntries/4 || d.tenants["quiet"] != 1 || len(d.list) != MaxEntries/4+1 {
		t.Errorf("%v wait", d.tenants)
	}
}

func splitSums(s string) (list []usage.Quantity) {
	for from, i := 0, 0; i < len(s); i++ {
		if s[i] == ';' {
			q, _ := usage.ParseQuantity(s[from:i])
			list, from = append(list, q), i+1
		}
	}
	return list
}
