package feed

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// TestEveryoneEndsWithTheNewest: whatever is published, followed, cut, stalled, dropped and
// restarted, all followers end with the newest values, in order, and nothing is left behind.
func TestEveryoneEndsWithTheNewest(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomRun(t, seed) })
		})
	}
}

type watch struct {
	seen    seen
	subject string
	stop    func()
}

// pause lets the bubble's time pass.
func pause(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }

func randomRun(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	s, p := newSite(t), newPress()
	for i := range 3 {
		s.serve(fmt.Sprint("s", i), ServerConfig{Source: p, MaxFollows: 64, InFlightBytes: int64(rng.IntN(2)) * 64 << 20})
	}
	var clients []*Client
	lists := make([][]*watch, 8)
	for i := range lists {
		clients = append(clients, s.client(fmt.Sprint("a", i), ClientConfig{Hedge: i%2 == 0, RetryDenied: 3 * time.Second}))
	}
	for range 300 {
		i := rng.IntN(len(lists))
		agent, server := fmt.Sprint("a", i), fmt.Sprint("s", rng.IntN(3))
		switch rng.IntN(14) {
		case 0, 1, 2, 3:
			size := []int{0, 100, 3000, 40_000, 700_000}[rng.IntN(5)]
			p.publish(fmt.Sprint(rng.IntN(20)), body(p.newest+1, size))
		case 4, 5:
			w := &watch{subject: fmt.Sprint(rng.IntN(20))}
			w.stop = clients[i].Follow(w.subject, fmt.Sprint("token", rng.IntN(2)), w.seen.set, w.seen.failed)
			lists[i] = append(lists[i], w)
		case 6:
			if n := len(lists[i]); n > 2 {
				lists[i][n-1].stop()
				lists[i] = lists[i][:n-1]
			}
		case 7:
			s.memory.Drop(agent, server)
		case 8:
			s.memory.Stall(server, agent)
		case 9:
			s.memory.Cut(agent, server)
		case 10:
			s.memory.Delay(server, agent, time.Duration(rng.IntN(200))*time.Millisecond)
		case 11:
			s.memory.Heal(agent, server)
			s.memory.Heal(server, agent)
		case 12:
			if rng.IntN(3) == 0 {
				s.servers[server+":1"].stop()
				s.serve(server, ServerConfig{Source: p, MaxFollows: 64})
			}
		case 13:
			p.deny("token1")
			pause(rng.IntN(3000))
			p.allow("token1")
		}
		pause(rng.IntN(400))
	}
	s.memory.HealAll()
	for i, list := range lists {
		for _, w := range list {
			want := max(1, p.values[w.subject].Index)
			polltest.Until(t, func() bool { return w.seen.last() == want }, "client %d, subject %s: index %d of %d", i,
				w.subject, want, w.seen.last())
			w.seen.check(t)
		}
		polltest.Until(t, func() bool { return clients[i].Newest() == p.newest && !clients[i].Stale() },
			"client %d to know that it is complete", i)
	}
	for _, list := range lists {
		for _, w := range list {
			w.stop()
		}
	}
	polltest.Until(t, func() bool { return p.count() == 0 }, "all follows to end at the source")
	for _, server := range s.servers {
		polltest.Until(t, func() bool { return server.Stats().Follows == 0 && server.Stats().Dirty == 0 },
			"all follows to end at the servers: %+v", server.Stats())
	}
}
