package roundrobin

import (
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/monitor/hub"
)

// maxPending bounds the changes that wait to be told; beyond it everything is told anew.
const maxPending = 64 << 10

// change is an agent that joined a ring, or left it.
type change struct {
	Ring
	agent string
	since int64 // Unix milliseconds of joining; 0 is left
}

// roll is the agents of this server in the rings that checks want, and what of it the leader was not told.
type roll struct {
	clock clock.Clock
	boot  uint64
	wake  chan struct{}

	mu      sync.Mutex // taken within the hub's
	rings   map[Ring]map[string]int64
	pending []change
	full    bool // all is to be told
	seq     uint64
}

func (r *roll) init(clk clock.Clock, boot uint64) {
	r.clock, r.boot, r.wake = clk, boot, make(chan struct{}, 1)
	r.rings, r.full = map[Ring]map[string]int64{}, true
}

// changed is told by the hub.
func (r *roll) changed(namespace, subscription, agent string, joined bool) {
	ring := Ring{namespace, subscription}
	r.mu.Lock()
	defer r.mu.Unlock()
	members, wanted := r.rings[ring]
	if !wanted {
		return
	}
	c := change{Ring: ring, agent: agent}
	if joined {
		c.since = r.clock.Now().UnixMilli()
		members[agent] = c.since
	} else {
		delete(members, agent)
	}
	if !r.full {
		r.pending = append(r.pending, c)
	}
	if len(r.pending) > maxPending {
		r.full, r.pending = true, nil
	}
	notify(r.wake)
}

// set says which rings are wanted.
func (r *roll) set(rings map[Ring]struct{}, h *hub.Hub) {
	var fresh []Ring
	r.mu.Lock()
	for ring := range r.rings {
		if _, wanted := rings[ring]; !wanted {
			delete(r.rings, ring)
			r.full, r.pending = true, nil
		}
	}
	for ring := range rings {
		if r.rings[ring] == nil {
			fresh = append(fresh, ring)
		}
	}
	r.mu.Unlock()
	for _, ring := range fresh {
		h.Visit(ring.Namespace, ring.Subscription, func(agents []string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			members := make(map[string]int64, len(agents))
			for _, a := range agents {
				members[a] = r.clock.Now().UnixMilli()
			}
			r.rings[ring] = members
			r.full, r.pending = true, nil
		})
	}
	notify(r.wake)
}

// take returns what is to be told next: all, where afresh says so, or what changed since.
func (r *roll) take(afresh bool) *told {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	t := &told{boot: r.boot, seq: r.seq, full: r.full || afresh}
	if t.full {
		for ring, members := range r.rings {
			for agent, since := range members {
				t.changes = append(t.changes, change{ring, agent, since})
			}
		}
	} else {
		t.changes = r.pending
	}
	r.full, r.pending = false, nil
	return t
}

// told is what a server tells the leader.
type told struct {
	server  string
	boot    uint64
	seq     uint64
	full    bool
	changes []change
}

// silence is after how long a server that was not heard has no agents.
const silence = 2 * time.Second

// table is what the leader was told by all servers. It is pure.
type table struct {
	servers map[string]*place
	rings   map[Ring][]member // by agent's name; made anew when it is asked for and absent
}

// place is a server's agents.
type place struct {
	boot, seq uint64
	heard     time.Duration
	up        bool
	rings     map[Ring]map[string]int64
}

func newTable() table { return table{servers: map[string]*place{}, rings: map[Ring][]member{}} }

// take takes what a server told; false is that it has to tell all.
func (t *table) take(in *told, now time.Duration) bool {
	p := t.servers[in.server]
	switch {
	case in.full:
		t.forget(p)
		p = &place{rings: map[Ring]map[string]int64{}}
		t.servers[in.server] = p
	case p == nil || p.boot != in.boot || p.seq+1 != in.seq:
		return false
	}
	p.boot, p.seq, p.heard = in.boot, in.seq, now
	if !p.up {
		p.up = true
		t.forget(p)
	}
	for _, c := range in.changes {
		delete(t.rings, c.Ring)
		switch {
		case c.since == 0:
			delete(p.rings[c.Ring], c.agent)
		case p.rings[c.Ring] == nil:
			p.rings[c.Ring] = map[string]int64{c.agent: c.since}
		default:
			p.rings[c.Ring][c.agent] = c.since
		}
	}
	return true
}

// forget drops what was made of a server's agents.
func (t *table) forget(p *place) {
	if p == nil {
		return
	}
	for ring := range p.rings {
		delete(t.rings, ring)
	}
}

// sweep leaves out servers that were not heard for too long.
func (t *table) sweep(now time.Duration) {
	for _, p := range t.servers {
		if p.up && now-p.heard > silence {
			p.up = false
			t.forget(p)
		}
	}
}

// heardSince says whether a server told something since a time.
func (t *table) heardSince(server string, since time.Duration) bool {
	p := t.servers[server]
	return p != nil && p.heard >= since
}

// ring returns a ring's agents by their names. One that two servers name belongs to the one that it joined last.
func (t *table) ring(r Ring) []member {
	if list, made := t.rings[r]; made {
		return list
	}
	type at struct {
		server string
		since  int64
	}
	newest := map[string]at{}
	for server, p := range t.servers {
		if !p.up {
			continue
		}
		for agent, since := range p.rings[r] {
			if old, has := newest[agent]; !has || old.since < since || old.since == since && old.server < server {
				newest[agent] = at{server, since}
			}
		}
	}
	list := make([]member, 0, len(newest))
	for agent, a := range newest {
		list = append(list, member{agent, a.server})
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.agent, b.agent) })
	t.rings[r] = list
	return list
}
