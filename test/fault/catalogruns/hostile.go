package catalogruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/intrude"
)

// Hostile says how long processes without certificate, key or token lie by gossip while a load runs, and an agent and
// a stranger call what servers alone may call (A13).
type Hostile struct {
	// Schedules are drawn one after the other, each with the liars of one kind or several.
	Schedules int
	// Each is how long a schedule lasts.
	Each time.Duration
}

// HostileReport is what became of it.
type HostileReport struct {
	Schedules, Liars, Looks, Acked, Calls, Refused int
	Kinds                                          map[string]int
}

// hostileRun is a cluster with liars in its pool.
type hostileRun struct {
	c    *faultrun.Cluster
	rng  *rand.Rand
	want []raftMember
	// silent is an address where a connection is accepted and nothing answered.
	silent string

	report *HostileReport
	looks  atomic.Int64
	wg     sync.WaitGroup
}

// raftMember is a member of the catalog's group, as a server tells of it.
type raftMember struct {
	ID, Address string
	Voter       bool
}

// lie is what a process says of itself in the pool.
type lie struct {
	tags   map[string]string
	leaves bool
}

// hostileKinds are the lies, and what else is done meanwhile.
var hostileKinds = []string{"address", "id", "swap", "replica", "left", "flood", "election", "freeze", "restart"}

// RunHostile lets liars come and go under a load. Nobody may lose a vote, no write may be lost, and the members are, at
// each look at each server, who they were.
func RunHostile(ctx context.Context, l *faultrun.Lab, cfg Hostile, seed uint64) (report HostileReport, err error) {
	a, err := intrude.NewAuthority(ctx, l.Binary, l.Dir)
	if err != nil {
		return report, err
	}
	shape := harness.Config{Servers: 3, Monitor: true,
		HCL: []string{faultrun.MonitorHCL, faultrun.LinearHCL, faultrun.StableHCL, a.HCL()}}
	c, book, load, err := loaded(ctx, l, shape, seed)
	if err != nil {
		return report, err
	}
	defer c.Close()
	defer load.Close()
	report.Kinds = map[string]int{}
	r := &hostileRun{c: c, rng: rand.New(rand.NewPCG(seed, 13)), report: &report}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return report, err
	}
	defer silent.Close()
	r.silent = silent.Addr().String()
	if err := spawn.Until(ctx, harness.StartLimit, "three voters", func() error { return c.Voters(ctx, 3) }); err != nil {
		return report, err
	}
	if r.want, err = members(ctx, c.Admin.At(c.Servers[0].HTTP), ""); err != nil {
		return report, err
	}
	var acked atomic.Int64
	for _, w := range load.List {
		w.Pace, w.Acks = 20*time.Millisecond, func() { acked.Add(1) }
	}
	load.Start(ctx)
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for _, s := range c.Servers {
		r.wg.Go(func() { r.watch(watching, s, stop) })
	}
	ended := a.Start(watching, stop, c.Servers[0].RPC, c.Servers[1].RPC, c.Servers[2].RPC)
	for n := 0; n < cfg.Schedules && watching.Err() == nil; n++ {
		if err := r.schedule(watching, n, cfg.Each); err != nil && watching.Err() == nil {
			stop(err)
		}
		report.Schedules++
	}
	wrong := context.Cause(watching)
	stop(nil)
	r.wg.Wait()
	load.Stop()
	report.Looks, report.Acked = int(r.looks.Load()), int(acked.Load())
	report.Calls, report.Refused = ended()
	err = errors.Join(wrong, c.Converged(ctx, harness.StartLimit), c.Audit(ctx, book), c.Voters(ctx, 3), c.Damage())
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs())
	}
	return report, err
}

// members lists the members of the catalog's group as the server tells of them itself.
func members(ctx context.Context, c *faultrun.Client, params string) ([]raftMember, error) {
	r := c.Do(ctx, "GET", "/v1/operator/raft/configuration"+params, nil)
	var answer struct{ Servers []raftMember }
	if r.Status != 200 {
		return nil, errors.New(r.String())
	}
	err := json.Unmarshal(r.Body, &answer)
	slices.SortFunc(answer.Servers, func(a, b raftMember) int { return strings.Compare(a.ID, b.ID) })
	return answer.Servers, err
}

// watch looks at a server's members all the time.
func (r *hostileRun) watch(ctx context.Context, s *faultrun.Server, stop context.CancelCauseFunc) {
	client := faultrun.NewClient(s.HTTP)
	defer client.Close()
	client.Timeout = 2 * time.Second
	for ctx.Err() == nil {
		// One that was just started has read no configuration yet.
		got, err := members(ctx, client, "?stale")
		if err == nil && len(got) > 0 {
			r.looks.Add(1)
			if !slices.Equal(got, r.want) {
				stop(fmt.Errorf("for %s the members are %v; they were %v", s.Name, got, r.want))
				return
			}
		}
		_ = spawn.Sleep(ctx, 20*time.Millisecond)
	}
}

// schedule lets liars of some kinds in for a while.
func (r *hostileRun) schedule(ctx context.Context, n int, each time.Duration) error {
	kinds := []string{hostileKinds[n%len(hostileKinds)]}
	for len(kinds) < 1+n/len(hostileKinds)%3 {
		kinds = append(kinds, hostileKinds[r.rng.IntN(len(hostileKinds))])
	}
	victim := r.c.Servers[r.rng.IntN(len(r.c.Servers))]
	id := r.idOf(victim)
	var lies []lie
	var meanwhile func() error
	for _, kind := range kinds {
		r.report.Kinds[kind]++
		_, port, _ := net.SplitHostPort(victim.RPC)
		_, mute, _ := net.SplitHostPort(r.silent)
		_, other, _ := net.SplitHostPort(r.c.Servers[r.rng.IntN(len(r.c.Servers))].RPC)
		say := func(id, port string) lie { return lie{tags: map[string]string{"id": id, "port": port}} }
		switch kind {
		case "address":
			lies = append(lies, say(uuid.NewString(), port), say(uuid.NewString(), port))
		case "id":
			lies = append(lies, say(id, mute), say(id, "1"))
		case "swap":
			lies = append(lies, say(id, other))
		case "replica":
			lies = append(lies, lie{tags: map[string]string{"id": id, "port": port, "read_replica": "1"}})
		case "left":
			lies = append(lies, lie{tags: map[string]string{"id": id, "port": port}, leaves: true})
		case "flood":
			for range 12 {
				lies = append(lies, say(uuid.NewString(), strconv.Itoa(1+r.rng.IntN(60000))))
			}
		case "election":
			meanwhile = func() error { _ = r.c.Transfer(ctx); return nil } // refused is as well
		case "freeze":
			lies = append(lies, say(id, mute), say(uuid.NewString(), port))
			meanwhile = func() error {
				if err := victim.Freeze(); err != nil {
					return err
				}
				_ = spawn.Sleep(ctx, time.Duration(1+r.rng.IntN(20))*each/10)
				return victim.Thaw()
			}
		case "restart":
			lies = append(lies, say(id, mute))
			meanwhile = func() error {
				victim.Kill()
				_ = spawn.Sleep(ctx, each/2)
				return victim.Start()
			}
		}
	}
	return r.live(ctx, victim, lies, meanwhile, each)
}

func (r *hostileRun) idOf(s *faultrun.Server) string {
	for _, m := range r.want {
		if m.Address == s.RPC {
			return m.ID
		}
	}
	return ""
}

// live lets the liars live for a while, and does something beside them.
func (r *hostileRun) live(ctx context.Context, victim *faultrun.Server, lies []lie, meanwhile func() error,
	each time.Duration) error {
	living, end := context.WithTimeout(ctx, each)
	defer end()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, l := range lies {
		r.report.Liars++
		// Not by the victim, which may be frozen or dead.
		at := r.c.Servers[(slices.Index(r.c.Servers, victim)+1)%len(r.c.Servers)]
		name := fmt.Sprintf("liar-%d-%d", r.report.Liars, i)
		tags := map[string]string{"role": "consul", "dc": "dc1", "vsn": "2", "raft_vsn": "3", "raft_joined": "1"}
		for k, v := range l.tags {
			tags[k] = v
		}
		pool, err := member.New(member.Config{Name: name, Bind: "127.0.0.1:0", Tags: tags, Profile: member.Local})
		if err != nil {
			return err
		}
		wg.Go(func() { _ = pool.Run(living) })
		wg.Go(func() {
			if _, err := pool.Join(living, []string{at.Serf}); err == nil && l.leaves {
				_ = pool.Leave(living)
			}
		})
	}
	var err error
	if meanwhile != nil {
		err = meanwhile()
	}
	<-living.Done()
	end()
	wg.Wait()
	if err == nil && ctx.Err() == nil {
		err = r.c.Ready(ctx, harness.StartLimit)
	}
	return err
}
