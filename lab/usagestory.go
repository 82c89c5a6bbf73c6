package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn"
)

// The story of a published team: at each rollout of its usage counters, p99 of the remote cache went from 100 ms to
// more than a second, and five causes were found one after the other. Counters read the cache of a server through a
// proxy, and all five are on at once; then they are removed one by one. Misses, the proxy with its quota and the drain
// are real, and so is what they cost; the counters of the network card are synthetic, as in the scenarios of their own.
const (
	counters = 4
	// knownKeys are in the cache, as they are in the counters of the published team after a while.
	knownKeys = 500
	// askAgain is the pause of a counter, and fetch what a miss costs beyond the cache: the source is asked.
	askAgain = 4 * time.Millisecond
	fetch    = 15 * time.Millisecond
	// lowQuota is the part of a core that the proxy has while it is throttled.
	lowQuota = 0.02
	card     = "ens5"
)

// story is what runs in the scenarios of the usage plane.
type story struct {
	cache string      // address of the server's cache
	cold  atomic.Bool // counters ask for what they do not know yet
	stays atomic.Bool // a client goes on to use a cache host that drains
	next  atomic.Int64

	mu     sync.Mutex // guards what follows
	rates  map[string]uint64
	sum    map[string]uint64
	rounds []round // newest last
}

type round struct {
	at   time.Time
	took time.Duration
}

// roundsOf is for how long round trips are remembered.
const roundsOf = 5 * time.Second

func (s *story) saw(r round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds = append(s.rounds, r)
	if old := r.at.Add(-roundsOf); len(s.rounds) > 1024 && s.rounds[len(s.rounds)/2].at.Before(old) {
		s.rounds = slices.DeleteFunc(s.rounds, func(r round) bool { return r.at.Before(old) })
	}
}

// p99 is that of the last seconds, in milliseconds; zero where nothing came back.
func (s *story) p99(now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []time.Duration
	for _, r := range s.rounds {
		if now.Sub(r.at) < roundsOf {
			list = append(list, r.took)
		}
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return float64(list[len(list)*99/100]) / float64(time.Millisecond)
}

// cached starts a server with a cache that is full of what counters know.
func cached(ctx context.Context, b *environment) (err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.story = &story{cache: l.Addr().String(), rates: map[string]uint64{}, sum: map[string]uint64{}}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil { // the server takes it over
		return err
	}
	b.servers, err = b.cluster(ctx, "server", 1, fmt.Sprintf("usage { cache { port = %d } }", port))
	if err != nil {
		return err
	}
	c, err := dialCache(ctx, b.story.cache)
	if err != nil {
		return err
	}
	defer c.Close()
	for n := range knownKeys {
		if _, err := c.do("SET", keyOf(n), "seen"); err != nil {
			return err
		}
	}
	return nil
}

func keyOf(n int) string { return fmt.Sprint("usage:seen:", n) }

// cacheConn speaks as much of the Redis protocol as counters need.
type cacheConn struct {
	net.Conn
	in *bufio.Reader
}

func dialCache(ctx context.Context, addr string) (*cacheConn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &cacheConn{nc, bufio.NewReader(nc)}, nil
}

// do asks, and returns whether there is a value.
func (c *cacheConn) do(words ...string) (there bool, err error) {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return false, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return false, err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return false, err
	}
	switch line = strings.TrimSpace(line); {
	case strings.HasPrefix(line, "$-1"), strings.HasPrefix(line, "_"):
		return false, nil
	case strings.HasPrefix(line, "$"):
		n, err := strconv.Atoi(line[1:])
		if err == nil {
			_, err = c.in.Discard(n + 2)
		}
		return true, err
	case strings.HasPrefix(line, "-"):
		return false, fmt.Errorf("the cache answers %s", line)
	}
	return true, nil
}

// count has counters ask the cache at an address, until the load ends.
func (b *environment) count(addr string) {
	for range counters {
		b.load.Go(func() {
			for b.load.ctx.Err() == nil {
				if c, err := dialCache(b.load.ctx, addr); err == nil {
					b.countBy(c)
					_ = c.Close()
				}
				_ = spawn.Sleep(b.load.ctx, 100*time.Millisecond)
			}
		})
	}
}

// countBy asks until the connection fails or the load ends: each second key is a new one while the counters are cold.
func (b *environment) countBy(c *cacheConn) {
	s := b.story
	for b.load.ctx.Err() == nil {
		n := s.next.Add(1)
		key := keyOf(int(n) % knownKeys)
		if s.cold.Load() && n%2 == 0 {
			key = fmt.Sprint("usage:new:", n)
		}
		began := time.Now()
		there, err := c.do("GET", key)
		if err == nil && !there {
			if err = spawn.Sleep(b.load.ctx, fetch); err == nil {
				_, err = c.do("SET", key, "seen", "PX", "60000")
			}
		}
		if err != nil {
			return
		}
		s.saw(round{time.Now(), time.Since(began)})
		if spawn.Sleep(b.load.ctx, askAgain) != nil {
			return
		}
	}
}

// stay has a client use the cache past its maintenance mode, as one does that knows no health check.
func (b *environment) stay() error {
	c, err := dialCache(b.load.ctx, b.story.cache)
	if err != nil {
		return err
	}
	if _, err := c.do("CLIENT", "SETNAME", "counter-7"); err != nil {
		return err
	}
	b.story.stays.Store(true)
	b.later(func() { _ = c.Close() })
	b.load.Go(func() {
		for b.load.ctx.Err() == nil && b.story.stays.Load() {
			if _, err := c.do("GET", keyOf(1)); err != nil {
				return
			}
			_ = spawn.Sleep(b.load.ctx, 50*time.Millisecond)
		}
	})
	return nil
}

// goCold empties the local caches of the counters.
func goCold(_ context.Context, b *environment) (string, error) {
	b.count(b.story.cache)
	b.story.cold.Store(true)
	return "rollout of", nil
}

// drainCache drains the cache while a client stays.
func drainCache(ctx context.Context, b *environment) (string, error) {
	if err := b.stay(); err != nil {
		return "", err
	}
	s := b.servers[0]
	return "terminating cache host " + s.Name, s.client.Put(ctx, "/v1/usage/drain", nil, nil, nil)
}

// fiveCauses turns all five on.
func fiveCauses(ctx context.Context, b *environment) (w expected, err error) {
	proxy, err := b.forwarder(ctx)
	if err != nil {
		return w, err
	}
	b.count(proxy)
	b.card(ctx)
	if err := spawn.Sleep(ctx, settle); err != nil {
		return w, err
	}
	b.say("without a cause, round trips take %.1f ms at the 99th percentile", b.story.p99(time.Now()))
	b.rates(map[string]uint64{"bw_out_allowance_exceeded": 300, "queue_3_tx_cnt": 60_000, "qdisc_requeued": 400,
		"qdisc_dropped": 20})
	b.story.cold.Store(true)
	if _, err := drainCache(ctx, b); err != nil {
		return w, err
	}
	return theFive(0), b.quota.set(lowQuota)
}

// theFive are what the doctor says from the n-th cause on, in its order: the machine first.
func theFive(n int) (w expected) {
	five := []finding{{"allowance-exceeded", "of " + card}, {"one-transmit-queue", "transmit queue 3 of " + card},
		{"proxy-throttled", "CPU quota of counter-proxy"}, {"usage-cache-cold", "rollout of"},
		{"usage-drain-waits", "terminating cache host"}}
	if n == len(five) {
		return expected{gone: five}
	}
	return expected{first: five[n], also: five[n+1:]}
}

// rates says by how much a second the counters of the card grow from now on, beside a healthy share.
func (b *environment) rates(more map[string]uint64) {
	rates := map[string]uint64{"bw_out_allowance_exceeded": 0, "qdisc_requeued": 0, "qdisc_dropped": 0}
	for q := range 8 {
		rates[fmt.Sprintf("queue_%d_tx_cnt", q)] = 900
	}
	maps.Copy(rates, more)
	b.story.mu.Lock()
	defer b.story.mu.Unlock()
	b.story.rates = rates
}

// card shows the server a network card, until the load ends.
func (b *environment) card(ctx context.Context) {
	b.rates(nil)
	b.load.Go(func() {
		const every = 500 * time.Millisecond
		for spawn.Sleep(b.load.ctx, every) == nil {
			b.story.mu.Lock()
			for name, n := range b.story.rates {
				b.story.sum[name] += n / uint64(time.Second/every)
			}
			now := maps.Clone(b.story.sum)
			b.story.mu.Unlock()
			_, err := b.servers[0].Control.Do(ctx, fault.Command{Do: fault.DoCards,
				Cards: map[string]map[string]uint64{card: now}})
			if err != nil {
				return // it ends with the process
			}
		}
	})
}

// forwarder starts a proxy in front of the cache, in a control group of its own, as an Envoy is found.
func (b *environment) forwarder(ctx context.Context) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr = l.Addr().String()
	if err := l.Close(); err != nil { // the proxy takes it over
		return "", err
	}
	err = asEnvoy(b, b.options.Binary, "lab", "forward", "--service-node", "counter-proxy", addr, b.story.cache)
	if err != nil {
		return "", err
	}
	for began := time.Now(); ; {
		c, err := dialCache(ctx, addr)
		if err == nil {
			return addr, c.Close()
		}
		if time.Since(began) > startTime {
			return "", err
		}
		if err := spawn.Sleep(ctx, 50*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// Forward passes TCP connections on, as the proxy of the story does, until ctx ends.
func Forward(ctx context.Context, listen, target string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		from, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		group.Go(func() {
			defer from.Close()
			d := net.Dialer{Timeout: 5 * time.Second}
			to, err := d.DialContext(ctx, "tcp", target)
			if err != nil {
				return
			}
			defer to.Close()
			defer context.AfterFunc(ctx, func() { _ = from.Close(); _ = to.Close() })()
			group.Go(func() { _, _ = io.Copy(to, from); _ = to.Close() })
			_, _ = io.Copy(from, to)
		})
	}
}

// The causes are removed one by one, as they were found.
var usageStory = []step{
	{"all five", fiveCauses},
	{"an instance type with a larger allowance", func(_ context.Context, b *environment) (expected, error) {
		b.rates(map[string]uint64{"queue_3_tx_cnt": 60_000})
		return theFive(1), nil
	}},
	{"packets are spread over all transmit queues", func(_ context.Context, b *environment) (expected, error) {
		b.rates(nil)
		return theFive(2), nil
	}},
	{"the proxy's CPU quota is raised", func(_ context.Context, b *environment) (expected, error) {
		return theFive(3), b.quota.set(8)
	}},
	{"counters load a snapshot in place of single keys", func(_ context.Context, b *environment) (expected, error) {
		b.story.cold.Store(false)
		return theFive(4), nil
	}},
	{"clients leave a cache host that drains", func(ctx context.Context, b *environment) (expected, error) {
		b.story.stays.Store(false)
		return theFive(5), b.servers[0].client.Send(ctx, http.MethodDelete, "/v1/usage/drain", nil, nil, nil)
	}},
}
