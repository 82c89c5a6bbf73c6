package snapcache

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

// serve gives a cache's values on a port of its own until stop.
func serve(t *testing.T, b *Cache) (addr string, metrics *telemetry.Registry, stop func()) {
	t.Helper()
	metrics = telemetry.New(telemetry.Config{})
	s, err := feed.NewServer(feed.ServerConfig{Source: b, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, l)
	}()
	return l.Addr().String(), metrics, func() { cancel(); <-done }
}

// An agent whose server goes is given nothing by the next that it has already, though the two
// merged the changes in their own ways: their values have the same indexes.
func TestAgentMovesToAnotherServer(t *testing.T) {
	h := newHarness(t, Config{Window: -1})
	slow, err := New(Config{Catalog: h.store, Window: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	defer func() { cancel(); <-done; <-done }()
	go func() { _ = slow.Run(ctx); done <- struct{}{} }()

	addr, _, stopFirst := serve(t, h.Cache)
	var server atomic.Value
	server.Store(addr)
	client, err := feed.NewClient(feed.ClientConfig{Node: "n1",
		Servers: func() []string { return []string{server.Load().(string)} },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = client.Run(ctx); done <- struct{}{} }()
	h.do(proxy("n1", "web", 1))
	var all []*seen
	for _, subject := range []string{"endpoints/dc1/web/", "service/web", "upstream/dc1/web///"} {
		s := &seen{t: t, subject: subject}
		defer client.Follow(subject, "", func(v feed.Value) { v.At = time.Now(); s.set(v) }, s.end)()
		all = append(all, s)
	}
	known := func(s *seen) bool {
		return s.count() > 0 && string(s.last().Body) == string(scratch(t, h.State(), s.subject))
	}
	await := func() {
		t.Helper()
		for _, s := range all {
			polltest.Until(t, func() bool { return known(s) }, "%s", s.subject)
		}
	}
	await()
	for i := range 5 {
		h.do(proxy("n2", "web", 10+i))
		await()
	}
	counts := []int{all[0].count(), all[1].count(), all[2].count()}

	second, metrics, stopSecond := serve(t, slow)
	defer stopSecond()
	server.Store(second)
	stopFirst()
	unchanged := metrics.Counter("feed.server.unchanged")
	polltest.Until(t, func() bool { return unchanged.Value() >= uint64(len(all)) },
		"the second server to say that nothing is new")
	for i, s := range all {
		if s.count() != counts[i] {
			t.Errorf("%s: told again", s.subject)
		}
	}
	h.do(proxy("n3", "web", 30))
	await()
}
