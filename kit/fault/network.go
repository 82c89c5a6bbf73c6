package fault

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/vfs"
)

// NetStatus tells what a network rule has done.
type NetStatus struct {
	Name       string
	Seen, Hits int
}

type netRule struct {
	NetStatus
	ops         []string
	glob        string
	skip, count int
	err         error
	delay       time.Duration
	stall       bool
}

// network decides what happens to dials, reads and writes. ask fits the fault hook of core/wire.
type network struct {
	active atomic.Bool
	mu     sync.Mutex // guards rules and their counts
	rules  []*netRule
}

func (c Command) netRule() (*netRule, error) {
	code, err := parseError(c.Error)
	if err != nil {
		return nil, err
	}
	r := &netRule{NetStatus: NetStatus{Name: c.Name}, glob: c.Glob, skip: c.Skip, count: c.Count,
		err: code, delay: c.Delay, stall: c.Stall}
	for op := range strings.SplitSeq(c.Ops, ",") {
		switch op = strings.TrimSpace(op); op {
		case "dial", "read", "write":
			r.ops = append(r.ops, op)
		case "", "all":
		default:
			return nil, fmt.Errorf("unknown network operation %q (know dial read write)", op)
		}
	}
	if code == nil && c.Delay <= 0 && !c.Stall {
		return nil, errNoEffect
	}
	return r, nil
}

func (n *network) inject(r *netRule) {
	n.lift(r.Name)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = append(n.rules, r)
	n.active.Store(true)
}

func (n *network) lift(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := len(n.rules)
	n.rules = slices.DeleteFunc(n.rules, func(r *netRule) bool { return r.Name == name })
	n.active.Store(len(n.rules) > 0)
	return len(n.rules) < before
}

func (n *network) liftAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = nil
	n.active.Store(false)
}

func (n *network) status() []NetStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []NetStatus
	for _, r := range n.rules {
		list = append(list, r.NetStatus)
	}
	return list
}

// ask returns how long to hold the operation (negative: stall, ask again) and
// whether to break it. Errors win over stalls, stalls over delays; delays add up.
func (n *network) ask(op, peer string) (hold time.Duration, err error) {
	if !n.active.Load() {
		return 0, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	stall := false
	for _, r := range n.rules {
		if (len(r.ops) > 0 && !slices.Contains(r.ops, op)) || !matchPeer(r.glob, peer) {
			continue
		}
		r.Seen++
		if r.Seen <= r.skip || (r.count > 0 && r.Hits >= r.count) {
			continue
		}
		r.Hits++
		if r.err != nil {
			return 0, fmt.Errorf("%s %s: %w", op, peer, r.err)
		}
		stall = stall || r.stall
		hold += r.delay
	}
	if stall {
		return -1, nil
	}
	return hold, nil
}

// matchPeer also takes a host without a port for all ports of that host.
func matchPeer(glob, peer string) bool {
	if vfs.Match(glob, peer) {
		return true
	}
	at := strings.LastIndexByte(peer, ':')
	return at >= 0 && vfs.Match(glob, peer[:at])
}
