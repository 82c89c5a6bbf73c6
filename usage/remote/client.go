package remote

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/slots"
)

// Config of a Client.
type Config struct {
	// Hosts are those of the cache: who owns which slot. It is asked for each call, and must answer from memory.
	Hosts func() *slots.Map
	// Dial connects; nil means TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// User of AUTH, and its password, which is asked for with each connection; nil or "" is none. Name is what CLIENT LIST
	// shows.
	User     string
	Password func() string
	Name     string
	// MaintenanceKey exists on a host that drains; empty means MAINTENANCE_MODE. DrainLook is how often it is looked
	// for; zero means a second.
	MaintenanceKey string
	DrainLook      time.Duration
	// BatchKeys and BatchWait bound what travels together; zero means 64 and 200 µs.
	BatchKeys int
	BatchWait time.Duration
	// Conns is how many connections a host has; zero means 2. Queue is how many calls wait for a host at most; zero
	// means 8192.
	Conns, Queue int
	// Replicas is how many hosts a key is written to; zero means 2. Hosts must tell as many.
	Replicas int
	// Timeout bounds a call; zero means a second.
	Timeout time.Duration
	Metrics *telemetry.Registry
	Log     *slog.Logger
}

func (c *Config) user() string { return cmp.Or(c.User, "default") }

func (c *Config) complete() {
	c.MaintenanceKey = cmp.Or(c.MaintenanceKey, "MAINTENANCE_MODE")
	c.DrainLook = cmp.Or(c.DrainLook, time.Second)
	c.BatchKeys = cmp.Or(c.BatchKeys, 64)
	c.BatchWait = cmp.Or(c.BatchWait, 200*time.Microsecond)
	c.Conns = cmp.Or(c.Conns, 2)
	c.Queue = cmp.Or(c.Queue, 8192)
	c.Replicas = cmp.Or(c.Replicas, 2)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.Name = cmp.Or(c.Name, "corbel-usage")
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	if c.Metrics == nil {
		c.Metrics = telemetry.New(telemetry.Config{})
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Client is a Store over hosts of a cache.
type Client struct {
	cfg    Config
	meters meters

	mu    sync.Mutex // guards what follows
	hosts map[string]*host
	start func(h *host) // nil: Run has not begun, or has ended
	ended bool
	// base is the map that ring was made of: ring leaves out those that say they drain.
	base, ring *slots.Map
}

type meters struct {
	hedged, won, moved, refused *telemetry.Counter
}

var _ Store = (*Client)(nil)

// New makes a Client.
func New(cfg Config) *Client {
	cfg.complete()
	r := cfg.Metrics
	r.Declare(telemetry.KindCounter, "usage.cache.hedged", "Reads that also went to a replica.")
	r.Declare(telemetry.KindCounter, "usage.cache.hedged_won", "Of these, those that the replica answered first.")
	r.Declare(telemetry.KindCounter, "usage.cache.moved", "Calls that a host sent to another one.")
	r.Declare(telemetry.KindCounter, "usage.cache.refused", "Calls that failed at once, as too many wait for their host.")
	return &Client{cfg: cfg, hosts: map[string]*host{}, meters: meters{hedged: r.Counter("usage.cache.hedged"),
		won: r.Counter("usage.cache.hedged_won"), moved: r.Counter("usage.cache.moved"),
		refused: r.Counter("usage.cache.refused")}}
}

// Run owns the connections until ctx ends.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	c.mu.Lock()
	c.start = func(h *host) {
		ctx, end := context.WithCancel(ctx)
		h.end = end
		for range c.cfg.Conns {
			wg.Go(func() { h.run(ctx) })
		}
	}
	for _, h := range c.hosts {
		c.start(h)
	}
	c.mu.Unlock()
	c.watch(ctx)
	c.mu.Lock()
	c.start, c.ended = nil, true
	c.mu.Unlock()
	wg.Wait()
	for _, h := range c.hosts {
		h.refuse(ctx, nil, ErrEnded)
	}
	return nil
}

// watch ends the connections to hosts that are gone, until ctx ends.
func (c *Client) watch(ctx context.Context) {
	t := time.NewTicker(c.cfg.Timeout)
	defer t.Stop()
	gone := map[*host]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			gone = c.forget(gone)
		}
	}
}

// forget ends hosts that the map has not had for two looks: what was sent to them before has timed out. It returns
// those that it missed for the first time.
func (c *Client) forget(before map[*host]bool) map[*host]bool {
	there := map[string]bool{}
	for _, n := range c.cfg.Hosts().Nodes() {
		there[n.Addr()] = true
	}
	gone := map[*host]bool{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, h := range c.hosts {
		switch {
		case there[addr]:
		case before[h]:
			h.end()
			delete(c.hosts, addr)
		default:
			gone[h] = true
		}
	}
	return gone
}

// host is the one at an address; it is made when it is not known.
func (c *Client) host(addr string) (*host, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, ErrEnded
	}
	h := c.hosts[addr]
	if h == nil {
		h = &host{c: c, addr: addr, end: func() {}, queue: make(chan *call, c.cfg.Queue),
			roundtrip: c.cfg.Metrics.Timing("usage.cache.roundtrip", "peer", addr)}
		c.hosts[addr] = h
		if c.start != nil {
			c.start(h)
		}
	}
	return h, nil
}

// turned forgets the ring: a host drains, or does so no longer.
func (c *Client) turned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = nil
}

// owners are the addresses of a key's hosts, the owner first.
func (c *Client) owners(key string) ([]slots.Node, error) {
	now := c.cfg.Hosts()
	c.mu.Lock()
	if now != c.base {
		list := append([]slots.Node(nil), now.Nodes()...)
		for i := range list {
			if h := c.hosts[list[i].Addr()]; h != nil && h.draining.Load() {
				list[i].Draining = true
			}
		}
		c.base, c.ring = now, slots.Assign(list, c.cfg.Replicas)
	}
	ring := c.ring
	c.mu.Unlock()
	owners := ring.Owners(slots.Of([]byte(key)))
	if len(owners) == 0 {
		return nil, ErrHosts
	}
	return owners, nil
}

// begin sends a command to a host.
func (c *Client) begin(addr string, words []string) *call {
	call := newCall(words...)
	h, err := c.host(addr)
	if err != nil {
		call.end(Reply{}, err)
		return call
	}
	h.send(call)
	return call
}

// await is the answer of a call; it follows MOVED once.
func (c *Client) await(ctx context.Context, call *call) (Reply, error) {
	for tries := 0; ; tries++ {
		select {
		case <-call.done:
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		}
		if call.err != nil {
			return Reply{}, call.err
		}
		addr, ok := moved(call.reply)
		if !ok || tries > 0 {
			return call.reply, call.reply.Err()
		}
		c.meters.moved.Add(1)
		call = c.begin(addr, call.words)
	}
}

// pending is a command under way, with the hosts that it may go to.
type pending struct {
	key    string
	words  []string
	owners []slots.Node
	first  *call
	others []*call // of a write: at the replicas
}

// launch sends a command about a key; write sends it to all hosts of the key.
func (c *Client) launch(key string, write bool, words ...string) (*pending, error) {
	owners, err := c.owners(key)
	if err != nil {
		return nil, err
	}
	p := &pending{key: key, words: words, owners: owners, first: c.begin(owners[0].Addr(), words)}
	if h, err := c.host(owners[0].Addr()); write && err == nil && !h.copies.Load() {
		for _, o := range owners[1:] {
			p.others = append(p.others, c.begin(o.Addr(), words))
		}
	}
	return p, nil
}

// written is the answer to a write: the owner's, or a replica's where the owner cannot be reached.
func (c *Client) written(ctx context.Context, p *pending) (Reply, error) {
	reply, err := c.await(ctx, p.first)
	for _, other := range p.others {
		second, failed := c.await(ctx, other) // it is written there, too, when this returns
		if err != nil && failed == nil {
			reply, err = second, nil
		}
	}
	return reply, err
}

// read is the answer to a read. The replica is asked too when the owner fails, or is slow.
func (c *Client) read(ctx context.Context, p *pending) (Reply, error) {
	if len(p.owners) < 2 {
		return c.await(ctx, p.first)
	}
	select {
	case <-p.first.done:
		if p.first.err == nil {
			return c.await(ctx, p.first)
		}
	default:
	}
	h, err := c.host(p.owners[0].Addr())
	if err != nil {
		return Reply{}, err
	}
	t := time.NewTimer(h.slow.patience() - time.Since(p.first.begun))
	defer t.Stop()
	select {
	case <-p.first.done:
		if p.first.err == nil {
			return c.await(ctx, p.first)
		}
	case <-t.C:
	case <-ctx.Done():
		return Reply{}, ctx.Err()
	}
	c.meters.hedged.Add(1)
	second := c.begin(p.owners[1].Addr(), p.words)
	select {
	case <-p.first.done:
		if p.first.err == nil {
			return c.await(ctx, p.first)
		}
	case <-second.done:
		if second.err == nil && found(second.reply) {
			c.meters.won.Add(1)
			return c.await(ctx, second)
		}
		if reply, err := c.await(ctx, p.first); err == nil || second.err != nil {
			return reply, err
		}
		return c.await(ctx, second)
	case <-ctx.Done():
		return Reply{}, ctx.Err()
	}
	return c.await(ctx, second)
}

// found reports whether a replica's answer counts while the owner has not answered: a copy may be missing where the
// hosts have changed, and what is not there is the owner's to say.
func found(r Reply) bool {
	switch r.Kind {
	case '_':
		return false
	case ':':
		return r.Int != 0
	case '*':
		for _, part := range r.List {
			if part.Int == 0 {
				return false
			}
		}
	}
	return true
}

// bounded is ctx with the client's own end.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// Get implements Store.
func (c *Client) Get(ctx context.Context, keys ...string) ([][]byte, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	under := make([]*pending, len(keys))
	for i, key := range keys {
		p, err := c.launch(key, false, "GET", key)
		if err != nil {
			return nil, err
		}
		under[i] = p
	}
	out := make([][]byte, len(keys))
	for i, p := range under {
		reply, err := c.read(ctx, p)
		if err != nil {
			return nil, err
		}
		out[i] = reply.Bytes()
	}
	return out, nil
}

// Set implements Store.
func (c *Client) Set(ctx context.Context, items ...Item) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var under []*pending
	for _, it := range items {
		words := []string{"SET", it.Key, string(it.Value)}
		if it.Life > 0 {
			words = append(words, "PX", millis(it.Life))
		}
		p, err := c.launch(it.Key, true, words...)
		if err != nil {
			return err
		}
		under = append(under, p)
	}
	return c.all(ctx, under)
}

// all waits for writes, and returns the first error.
func (c *Client) all(ctx context.Context, under []*pending) (first error) {
	for _, p := range under {
		if _, err := c.written(ctx, p); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Delete implements Store.
func (c *Client) Delete(ctx context.Context, keys ...string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var under []*pending
	for _, key := range keys {
		p, err := c.launch(key, true, "DEL", key)
		if err != nil {
			return err
		}
		under = append(under, p)
	}
	return c.all(ctx, under)
}

func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// change writes a command about a key and, where it is to have a life, that.
func (c *Client) change(ctx context.Context, key string, life time.Duration, words ...string) (Reply, error) {
	p, err := c.launch(key, true, words...)
	if err != nil {
		return Reply{}, err
	}
	reply, err := c.written(ctx, p)
	if err != nil || life <= 0 {
		return reply, err
	}
	// Only now: two calls for a host may go over two connections.
	if p, err = c.launch(key, true, "PEXPIRE", key, millis(life)); err == nil {
		_, err = c.written(ctx, p)
	}
	return reply, err
}

// Add implements Store.
func (c *Client) Add(ctx context.Context, key string, life time.Duration, members ...string) (int, error) {
	if len(members) == 0 {
		return 0, nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	reply, err := c.change(ctx, key, life, append([]string{"SADD", key}, members...)...)
	return int(reply.Int), err
}

// Has implements Store.
func (c *Client) Has(ctx context.Context, key string, members ...string) ([]bool, error) {
	if len(members) == 0 {
		return nil, nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	p, err := c.launch(key, false, append([]string{"SMISMEMBER", key}, members...)...)
	if err != nil {
		return nil, err
	}
	reply, err := c.read(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(reply.List) != len(members) {
		return nil, errReply
	}
	out := make([]bool, len(members))
	for i, r := range reply.List {
		out[i] = r.Int == 1
	}
	return out, nil
}

// Count implements Store.
func (c *Client) Count(ctx context.Context, key string, life time.Duration, members ...string) (int64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if _, err := c.change(ctx, key, life, append([]string{"PFADD", key}, members...)...); err != nil {
		return 0, err
	}
	p, err := c.launch(key, false, "PFCOUNT", key)
	if err != nil {
		return 0, err
	}
	reply, err := c.read(ctx, p)
	return reply.Int, err
}
