package wan

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/telemetry"
)

// MethodPing is the RPC that does nothing, to see whether and how quickly a server answers.
const MethodPing = "wan.ping"

// AnswerPing implements MethodPing.
func AnswerPing(context.Context, []byte) ([]byte, error) { return nil, nil }

const (
	// pingInterval is the pause between two pings on a path that works; pingTimeout is how long
	// one may take: several times what any route on earth needs.
	pingInterval = 3 * time.Second
	pingTimeout  = 3 * time.Second
	// doubtInterval is the pause after a ping that failed or a call that did.
	doubtInterval = 500 * time.Millisecond
	// pathMisses is how many pings in a row must fail until the path counts as broken.
	pathMisses = 2
)

// Paths judges the ways to the servers of other datacenters, and asks them: one goroutine for each, which pings it. It
// is bounded by the servers that the pool knows. Safe for concurrent use.
type Paths struct {
	// Client calls the servers.
	Client  *rpc.Client
	ping    func(ctx context.Context, addr string) error
	log     *slog.Logger
	metrics *telemetry.Registry

	mu   sync.Mutex // guards all; held for map operations only
	all  map[string]*Path
	ends map[string]context.CancelFunc
	wg   sync.WaitGroup
}

// Path is the way to one server. What does not change needs no lock.
type Path struct {
	Addr     string
	name, dc string
	notify   chan struct{}

	mu     sync.Mutex // guards all below; a leaf
	alive  bool       // as gossip says
	judged bool       // a ping was answered, or enough of them were not
	up     bool
	misses int
	rtt    time.Duration // smoothed
	life   context.Context
	end    context.CancelFunc // of life: the path broke
}

// NewPaths returns paths that lead nowhere yet.
func NewPaths(client *rpc.Client, log *slog.Logger, metrics *telemetry.Registry) *Paths {
	ping := func(ctx context.Context, addr string) error {
		_, err := client.Call(ctx, addr, MethodPing, nil)
		return err
	}
	return &Paths{Client: client, ping: ping, log: log, metrics: metrics, all: map[string]*Path{},
		ends: map[string]context.CancelFunc{}}
}

// Follow takes in who the servers of other datacenters are. Their pings end with ctx.
func (p *Paths) Follow(ctx context.Context, members []member.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		addr := net.JoinHostPort(m.Addr, m.Tags["port"])
		key := m.Name + " " + addr
		seen[key] = true
		one := p.all[key]
		if one == nil {
			one = &Path{name: m.Name, dc: m.Tags["dc"], Addr: addr, notify: make(chan struct{}, 1)}
			one.life, one.end = context.WithCancel(context.Background())
			p.all[key] = one
			pathCtx, cancel := context.WithCancel(ctx)
			p.ends[key] = cancel
			p.wg.Go(func() { p.watch(pathCtx, one) })
		}
		one.setAlive(m.Status == member.Alive)
	}
	for key := range p.all {
		if !seen[key] {
			p.ends[key]()
			delete(p.all, key)
			delete(p.ends, key)
		}
	}
}

// Stop ends all pings and waits for them.
func (p *Paths) Stop() {
	p.mu.Lock()
	for _, end := range p.ends {
		end()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// watch pings one server until ctx ends.
func (p *Paths) watch(ctx context.Context, one *Path) {
	defer func() { one.end() }()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-one.notify:
		case <-t.C:
		}
		begin := time.Now()
		pingCtx, cancel := context.WithTimeout(ctx, pingTimeout)
		err := p.ping(pingCtx, one.Addr)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if changed := one.judge(err, time.Since(begin)); changed && err != nil {
			p.log.Warn("a server of another datacenter cannot be reached", "server", one.name, "address", one.Addr, "error", err)
		} else if changed {
			p.log.Info("reached a server of another datacenter", "server", one.name, "address", one.Addr)
		}
		pause := pingInterval - pingInterval/10 + rand.N(pingInterval/5)
		if err != nil {
			pause = doubtInterval
			if !one.usable() {
				pause = pingInterval
			}
		}
		t.Reset(pause)
	}
}

func (o *Path) setAlive(alive bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alive = alive
}

// judge takes in the outcome of a ping and tells whether it changed the verdict.
func (o *Path) judge(err error, took time.Duration) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		changed = !o.judged || !o.up
		if o.rtt == 0 {
			o.rtt = took
		}
		o.rtt += (took - o.rtt) / 4
		o.judged, o.up, o.misses = true, true, 0
		if o.life.Err() != nil {
			o.life, o.end = context.WithCancel(context.Background())
		}
		return changed
	}
	if o.misses++; o.misses < pathMisses {
		return false
	}
	changed = !o.judged || o.up
	o.judged, o.up = true, false
	o.end()
	return changed
}

// doubt makes the next ping come at once: a call failed.
func (o *Path) doubt() {
	select {
	case o.notify <- struct{}{}:
	default:
	}
}

// Broken ends when the path is judged broken.
func (o *Path) Broken() context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.life
}

// usable tells whether a call is worth trying: the server answers, or gossip says that it is
// there and no ping has told otherwise yet.
func (o *Path) usable() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.judged {
		return o.up
	}
	return o.alive
}

// distance is the round trip; ok is false when it was not measured or the path is broken.
func (o *Path) distance() (d time.Duration, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rtt, o.judged && o.up
}

// to returns up to most usable paths to a datacenter in random order.
func (p *Paths) to(dc string, most int) []*Path {
	p.mu.Lock()
	var list []*Path
	for _, one := range p.all {
		if one.dc == dc && one.usable() {
			list = append(list, one)
		}
	}
	p.mu.Unlock()
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(len(list), most)]
}

// All are the paths that there are, by the names of their servers.
func (p *Paths) All() []*Path {
	p.mu.Lock()
	list := make([]*Path, 0, len(p.all))
	for _, one := range p.all {
		list = append(list, one)
	}
	p.mu.Unlock()
	slices.SortFunc(list, func(a, b *Path) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.Addr, b.Addr)) })
	return list
}

// To is who is at the path's end, as gossip says, and whether a call is worth trying.
func (o *Path) To() (name, dc string, usable bool) { return o.name, o.dc, o.usable() }

// Knows tells whether any server of dc is known, reachable or not.
func (p *Paths) Knows(dc string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.dc == dc {
			return true
		}
	}
	return false
}

// DatacenterOf names the datacenter of the server at addr, "" when nobody known is there.
func (p *Paths) DatacenterOf(addr string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.Addr == addr {
			return one.dc
		}
	}
	return ""
}

// datacenters lists own, then the others by the median distance of their servers; those that
// cannot be reached come last, by name.
func (p *Paths) datacenters(own string) []string {
	p.mu.Lock()
	measured := map[string][]time.Duration{}
	for _, one := range p.all {
		list := measured[one.dc]
		if d, ok := one.distance(); ok {
			list = append(list, d)
		}
		measured[one.dc] = list
	}
	p.mu.Unlock()
	type row struct {
		dc string
		at time.Duration
	}
	var rows []row
	for dc, list := range measured {
		at := time.Duration(1<<63 - 1)
		if len(list) > 0 {
			slices.Sort(list)
			at = list[len(list)/2]
		}
		rows = append(rows, row{dc, at})
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.dc, b.dc)) })
	out := []string{own}
	for _, r := range rows {
		out = append(out, r.dc)
	}
	return out
}
