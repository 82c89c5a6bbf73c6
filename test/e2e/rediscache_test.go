package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/api/respapi"
	"corbel.dev/corbel/test/fetch"
	"corbel.dev/corbel/usage/cache"
)

// cacheHost is a host of the cache in this process.
type cacheHost struct {
	*respapi.Server
	cache *cache.Cache
	port  int
	end   func()
}

func startCacheHost(t *testing.T) *cacheHost {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &cacheHost{cache: cache.New(cache.Config{}), port: ln.Addr().(*net.TCPAddr).Port}
	h.Server = respapi.New(respapi.Config{Cache: h.cache})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, ln) }()
	h.end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(h.end)
	return h
}

// asked is how many commands about keys there were.
func (h *cacheHost) asked() uint64 {
	st := h.cache.Stats()
	return st.Hits + st.Misses
}

// setKeys sends commands over a connection to a proxy until stop is closed, and counts what was answered and what was
// not as it should be.
func setKeys(port, worker int, stop <-chan struct{}, done, failed *atomic.Int64, first *atomic.Pointer[string]) {
	fail := func(text string) {
		failed.Add(1)
		first.CompareAndSwap(nil, &text)
	}
	nc, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		fail(err.Error())
		return
	}
	defer func() { _ = nc.Close() }()
	in := bufio.NewReader(nc)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		key := fmt.Sprintf("w%d:%d", worker, i%500)
		_ = nc.SetDeadline(time.Now().Add(meshWait))
		_, err := fmt.Fprintf(nc, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$1\r\nx\r\n", len(key), key)
		answer := ""
		if err == nil {
			answer, err = in.ReadString('\n')
		}
		if err != nil || answer != "+OK\r\n" {
			fail(fmt.Sprintf("SET %s: %q %v", key, answer, err))
			if err != nil {
				return
			}
			continue
		}
		done.Add(1)
	}
}

// TestMeshDrainsACacheHost: three cache hosts behind a real Envoy that speaks the protocol redis. One of them drains
// under load, and ends when nobody needs it any more: no command fails.
func TestMeshDrainsACacheHost(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"cache","Protocol":"redis"}`)
	var hosts []*cacheHost
	for i := range 3 {
		h := startCacheHost(t)
		hosts = append(hosts, h)
		r.service(fmt.Sprint("cache-", i), "cache", "1", h.port, nil)
	}
	r.service("web", "web", "1", backend(t, "web"), map[string]int{"cache": r.port("to cache")})
	for _, id := range []string{"cache-0", "cache-1", "cache-2", "web"} {
		r.proxy(id)
	}
	var done, failed atomic.Int64
	var first atomic.Pointer[string]
	r.await("keys at all three hosts", func() bool {
		nc, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.port("to cache")))
		if err != nil {
			return false
		}
		defer func() { _ = nc.Close() }()
		_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
		in := bufio.NewReader(nc)
		for i := range 60 {
			_, err := fmt.Fprintf(nc, "*2\r\n$4\r\nINCR\r\n$3\r\nn%02d\r\n", i)
			if err != nil {
				return false
			}
			if answer, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(answer, ":") {
				return false
			}
		}
		return hosts[0].cache.Keys() > 5 && hosts[1].cache.Keys() > 5 && hosts[2].cache.Keys() > 5
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() { setKeys(r.port("to cache"), w, stop, &done, &failed, &first) })
	}
	r.await("load", func() bool { return done.Load() > 2000 })
	leaves := hosts[1]
	leaves.Drain()
	r.await("the host that drains has no client left", func() bool {
		// A busy machine may stand still for as long as a client has to be idle: others must have had load meanwhile.
		asked, began := leaves.asked(), done.Load()
		r.await("load elsewhere", func() bool { return done.Load() > began+1000 })
		return leaves.asked() == asked && len(leaves.Waiting()) == 0
	})
	leaves.end()
	before := done.Load()
	r.await("load without it", func() bool { return done.Load() > before+2000 })
	close(stop)
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d commands failed, the first: %s", failed.Load(), done.Load()+failed.Load(), *first.Load())
	}
	t.Logf("%d commands, %d of them failed", done.Load()+failed.Load(), failed.Load())
}
