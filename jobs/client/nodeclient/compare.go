package nodeclient

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/noderpc"
)

const (
	// compareEvery is how often what the servers know of the node's allocations is compared with what it has. A
	// difference is looked at again with the next heartbeat: most are updates on their way.
	compareEvery = time.Minute
	// soonEvery is in which time nodes compare that no server heard for a while.
	soonEvery = 10 * time.Second
	// wholeEvery bounds how often the servers are asked for all allocations, because some were never told.
	wholeEvery = 5 * time.Minute
	// maxEnds bounds the allocations whose end is remembered after they were deleted.
	maxEnds = 512
)

// compares finds what the servers know otherwise than the node: an update that was lost or overtaken, an allocation
// that never came. A sum goes with a heartbeat, and the leader answers with what it knows where its own differs.
type compares struct {
	// Of the goroutine that beats:
	due      time.Time
	suspects map[jobs.ID]string // what differed last, by what the servers knew
	asked    time.Time          // for all allocations

	mu    sync.Mutex // guards what follows
	ends  map[jobs.ID]noderpc.Update
	order []jobs.ID // of ends, the oldest first
	whole bool      // the next stream is to tell everything
	cut   context.CancelFunc
}

// isDue reports whether the next heartbeat compares. The nodes of a fleet begin at different times.
func (k *compares) isDue(now time.Time) bool {
	if k.due.IsZero() {
		k.due = now.Add(time.Duration(rand.Int64N(int64(compareEvery))))
	}
	return !now.Before(k.due)
}

// compareSoon is after the servers did not hear the node: they may have taken something of it for lost meanwhile, or
// have lost it.
func (k *compares) compareSoon(now time.Time) {
	k.due = now.Add(time.Duration(rand.Int64N(int64(soonEvery))))
}

// held are the allocations that are not over, with what was said of them last.
func held(c *Client) map[jobs.ID]string {
	all := map[jobs.ID]string{}
	for id, a := range c.snapshot() {
		status := allocrunner.Said(a.Runner)
		switch {
		case status == "" && a.over(c), terminal(status): // a former life saw its end
		case status == "":
			all[id] = jobs.ClientPending
		default:
			all[id] = status
		}
	}
	return all
}

func sumOf(all map[jobs.ID]string) uint64 {
	var sum noderpc.Sum
	for id, status := range all {
		sum.Add(id, status)
	}
	return uint64(sum)
}

// compare takes the answer: nothing where both are the same, or where no server of this release leads. What differs for
// the second time is said again, or asked for.
func compare(c *Client, list []noderpc.Known) {
	k, now := &c.compares, c.cfg.Clock.Now()
	former := k.suspects
	k.suspects = map[jobs.ID]string{}
	have, mine, waits := c.snapshot(), held(c), c.queue.untaken()
	again, missing := 0, 0
	for _, known := range list {
		if known.Node != c.key.Node {
			continue
		}
		for _, s := range known.Allocs {
			if mine[s.ID] == s.Status || waits[s.ID] {
				continue
			}
			k.suspects[s.ID] = s.Status
			switch a := have[s.ID]; {
			case former[s.ID] != s.Status:
			case a != nil:
				allocrunner.Retell(a.Runner)
				again++
			case sayEnd(c, s.ID):
				again++
			default:
				missing++
			}
		}
	}
	k.due = now.Add(compareEvery - time.Duration(rand.Int64N(int64(compareEvery)/8)))
	if len(k.suspects) > 0 && len(former) == 0 {
		k.due = now
	}
	if again > 0 {
		c.cfg.Log.Info("the servers know other states of allocations than the node has: it says them again",
			"allocations", again)
	}
	if missing > 0 && (k.asked.IsZero() || now.Sub(k.asked) >= wholeEvery) {
		c.cfg.Log.Info("the servers know allocations that the node does not have: it asks for all", "allocations", missing)
		k.asked = now
		k.askWhole()
	}
}

// askWhole begins the stream of allocations anew.
func (k *compares) askWhole() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.whole = true
	if k.cut != nil {
		k.cut()
	}
}

// begins is told of each stream, with what ends it. True when it is to tell everything.
func (k *compares) begins(cut context.CancelFunc) (whole bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	return k.whole
}

// hasWhole is after the first frame of such a stream: one that fails before has told nothing.
func (k *compares) hasWhole() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.whole = false
}

// keepEnd remembers how an allocation ended that is deleted: it is not to begin again, whatever the servers know.
func (k *compares) keepEnd(u noderpc.Update) {
	u.TaskStates, u.Network = nil, nil // the servers keep what they have
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ends == nil {
		k.ends = map[jobs.ID]noderpc.Update{}
	}
	if _, ok := k.ends[u.Alloc]; !ok {
		k.order = append(k.order, u.Alloc)
	}
	k.ends[u.Alloc] = u
	if len(k.order) > maxEnds {
		delete(k.ends, k.order[0])
		k.order = append(k.order[:0:0], k.order[1:]...)
	}
}

// forgetEnds is for servers that began anew.
func (k *compares) forgetEnds() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends, k.order = nil, nil
}

// sayEnd says again how an allocation ended that was deleted; false when nothing is known of it.
func sayEnd(c *Client, id jobs.ID) bool {
	c.compares.mu.Lock()
	u, ok := c.compares.ends[id]
	c.compares.mu.Unlock()
	if ok {
		c.queue.put(u)
	}
	return ok
}
