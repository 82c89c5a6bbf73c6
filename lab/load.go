package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/spawn"
)

// stream is one kind of load: workers that send one request after the other.
type stream struct {
	workers int
	// every is the pause between a worker's requests; zero is none.
	every time.Duration
	// from is the address that requests come from; "" lets the kernel choose.
	from string
	// send makes request n of a worker at a server.
	send func(ctx context.Context, c *client.Client, worker, n int) error
}

// steady is what all clusters carry: a few writes and reads from everywhere, far below what a cluster can take.
func steady() []stream {
	return []stream{{workers: 3, every: 25 * time.Millisecond, send: putKey},
		{workers: 3, every: 25 * time.Millisecond, send: getKey},
		{workers: 1, every: 100 * time.Millisecond, send: register}}
}

// full is as much as a cluster takes.
func full(*environment) []stream {
	return []stream{{workers: 16, send: putKey}, {workers: 4, send: getKey}, {workers: 8, send: register}}
}

func putKey(ctx context.Context, c *client.Client, worker, n int) error {
	return c.Put(ctx, fmt.Sprintf("/v1/kv/lab/%d/%d", worker, n%100), nil, map[string]int{"n": n}, nil)
}

func getKey(ctx context.Context, c *client.Client, worker, n int) error {
	var out []any
	_, err := c.Get(ctx, fmt.Sprintf("/v1/kv/lab/%d/%d", worker, n%100), client.Query{}, &out)
	return err
}

func register(ctx context.Context, c *client.Client, worker, n int) error {
	node := fmt.Sprintf("lab-%d-%d", worker, n%50)
	return c.Put(ctx, "/v1/catalog/register", nil, map[string]any{"Node": node, "Address": "10.9.0.1",
		"Service": map[string]any{"Service": "lab", "Port": 1000 + n%1000}}, nil)
}

// load is what clients, and benches, do to the clusters until stop is called; then its goroutines are waited for.
type load struct {
	sync.WaitGroup
	ctx    context.Context // until the load ends
	stop   context.CancelFunc
	failed func() error // says that it did not last; nil: nobody watches it
}

// startLoad starts the scenario's load; its workers end with close.
func (b *environment) startLoad(ctx context.Context) {
	ctx, b.load.stop = context.WithCancel(ctx)
	b.load.ctx = ctx
	streams := steady()
	if b.scenario.load != nil {
		streams = b.scenario.load(b)
	}
	b.add(ctx, streams...)
}

func (b *environment) add(ctx context.Context, streams ...stream) {
	for _, st := range streams {
		for w := range st.workers {
			s := b.servers[w%len(b.servers)]
			b.load.Go(func() { st.run(ctx, s, w) })
		}
	}
}

func (st stream) run(ctx context.Context, s *server, worker int) {
	cfg := client.Config{Address: s.client.Address(), Timeout: 10 * time.Second}
	if !strings.HasPrefix(cfg.Address, "unix:") {
		dialer := &net.Dialer{Timeout: 5 * time.Second}
		if st.from != "" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(st.from)}
		}
		cfg.Transport = &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, DialContext: dialer.DialContext}
	}
	c, err := client.New(cfg)
	if err != nil {
		return // the address was good for the server's own client
	}
	defer c.Close()
	for n := 0; ctx.Err() == nil; n++ {
		err := st.send(ctx, c, worker, n)
		pause := st.every
		if err != nil && !client.IsNotFound(err) {
			pause = max(pause, 100*time.Millisecond) // as clients do that are turned away
		}
		if pause > 0 && spawn.Sleep(ctx, pause) != nil {
			return
		}
	}
}
