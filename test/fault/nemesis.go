package faultrun

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

// FaultKind names one thing that goes wrong.
type FaultKind string

// The kinds. Those that break a majority are healed before the next one begins.
const (
	FaultKill    FaultKind = "kill"    // kill -9 of one, restart with its data
	FaultKillAll FaultKind = "killall" // kill -9 of all at once
	// SIGSTOP of one for 1 to 20 s, mostly short; at times of another one right after it
	FaultFreeze    FaultKind = "freeze"
	FaultPartition FaultKind = "partition" // one cut from the others, both ways
	FaultOneWay    FaultKind = "oneway"    // what one sends to the others is lost
	FaultClock     FaultKind = "clock"     // wall clock of one jumps by up to an hour
	FaultSkew      FaultKind = "skew"      // clock of one runs 100 ms/s wrong
	FaultSlowDisk  FaultKind = "slowdisk"  // syncs of one, or all, take 20 to 200 ms
	FaultFullDisk  FaultKind = "fulldisk"  // ENOSPC on one, or all
	FaultBadDisk   FaultKind = "baddisk"   // EIO on one's writes and syncs
	FaultStallDisk FaultKind = "stalldisk" // one's disk hangs
	FaultTransfer  FaultKind = "transfer"  // planned change of leader
	FaultMember    FaultKind = "member"    // one is removed from the group and comes back, with or without its data
)

// AllFaults are all kinds, mixed.
var AllFaults = []FaultKind{FaultKill, FaultKillAll, FaultFreeze, FaultPartition, FaultOneWay, FaultClock, FaultSkew,
	FaultSlowDisk, FaultFullDisk, FaultBadDisk, FaultStallDisk, FaultTransfer, FaultMember}

// Nemesis breaks a cluster by a plan that its seed makes. It owns the cluster while it runs.
type Nemesis struct {
	C     *Cluster
	Rng   *rand.Rand
	Kinds []FaultKind
	// Done counts what was done, by kind.
	Done map[FaultKind]int
	Log  []string
	// Begin is when the history began: the log's times are comparable with its.
	Begin time.Time
}

// Run breaks and heals until ctx ends, then heals for good.
func (n *Nemesis) Run(ctx context.Context) error {
	n.Done = map[FaultKind]int{}
	// The first two kinds of each run are the first of the shuffled list, so that a few runs cover all.
	order := n.Rng.Perm(len(n.Kinds))
	for i := 0; ctx.Err() == nil; i++ {
		if spawn.Sleep(ctx, n.between(300, 1200)) != nil {
			break
		}
		kind := n.Kinds[order[i%len(order)]]
		n.note("%s begins", kind)
		if err := n.once(ctx, kind); err != nil && ctx.Err() == nil {
			return fmt.Errorf("fault %s could not be injected: %w", kind, err)
		}
		n.Done[kind]++
		if err := n.C.Heal(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("healing after %s: %w", kind, err)
		}
		n.note("%s healed", kind)
	}
	return n.C.Heal(context.WithoutCancel(ctx))
}

func (n *Nemesis) note(format string, args ...any) {
	n.Log = append(n.Log, fmt.Sprintf("%8.3fs ", time.Since(n.Begin).Seconds())+fmt.Sprintf(format, args...))
}

func (n *Nemesis) between(lowMillis, highMillis int) time.Duration {
	return time.Duration(lowMillis+n.Rng.IntN(highMillis-lowMillis)) * time.Millisecond
}

// victim is the leader half of the time, where one is known at once.
func (n *Nemesis) victim(ctx context.Context) *Server {
	if n.Rng.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if leader := n.C.Leader(ctx); leader != nil {
			return leader
		}
	}
	return n.C.Servers[n.Rng.IntN(len(n.C.Servers))]
}

func (n *Nemesis) others(s *Server) []*Server {
	return slices.DeleteFunc(slices.Clone(n.C.Servers), func(o *Server) bool { return o == s })
}

// freeze stops one process for 1 to 20 s, half of the time for less than 4.5, and at times another one as soon as it
// goes on.
func (n *Nemesis) freeze(ctx context.Context, victim *Server) error {
	for {
		if err := victim.Freeze(); err != nil {
			return err
		}
		d := time.Duration(float64(time.Second) * math.Pow(20, n.Rng.Float64()))
		n.note("%s stands still for %s", victim.Name, d.Round(time.Millisecond))
		_ = spawn.Sleep(ctx, d)
		if n.Rng.IntN(3) > 0 || ctx.Err() != nil {
			return nil // Heal has it go on
		}
		if err := victim.Thaw(); err != nil {
			return err
		}
		others := n.others(victim)
		if len(others) == 0 {
			return nil
		}
		victim = others[n.Rng.IntN(len(others))]
		if !victim.Running() {
			return nil
		}
	}
}

func (n *Nemesis) once(ctx context.Context, kind FaultKind) error {
	victim := n.victim(ctx)
	n.note("victim %s", victim.Name)
	var err error
	// a command that is cut short breaks the line to the process, and nothing could be healed
	control := context.WithoutCancel(ctx)
	switch kind {
	case FaultKill:
		victim.Kill()
	case FaultKillAll:
		for _, s := range n.C.Servers {
			_ = s.Control.Kill() // all at once; Kill below waits
		}
		for _, s := range n.C.Servers {
			s.Kill()
		}
		_ = spawn.Sleep(ctx, n.between(0, 300))
		return nil
	case FaultFreeze:
		return n.freeze(ctx, victim)
	case FaultPartition:
		err = fault.Partition(control, harness.Peers(victim), harness.Peers(n.others(victim)...))
	case FaultOneWay:
		err = n.oneWay(control, victim)
	case FaultClock:
		err = victim.Control.SetClock(control, time.Duration(n.Rng.IntN(7200)-3600)*time.Second, 1)
	case FaultSkew:
		err = victim.Control.SetClock(control, 0, []float64{0.9, 1.1}[n.Rng.IntN(2)])
	case FaultTransfer:
		if err := n.C.Transfer(ctx); err != nil {
			n.note("%v", err) // refused while there is no leader: no fault of the driver
		}
		return nil
	case FaultMember:
		return n.change(ctx)
	default:
		err = n.disk(control, kind, victim)
	}
	if err != nil {
		return err
	}
	_ = spawn.Sleep(ctx, n.between(500, 3500))
	return nil
}

// oneWay loses what from sends, on the connections that it opened and on those that it took.
func (n *Nemesis) oneWay(ctx context.Context, from *Server) error {
	var errs []error
	for _, to := range n.others(from) {
		errs = append(errs,
			from.Control.Net(ctx, fault.Command{Name: "out " + to.RPC, Ops: "write,dial", Glob: to.RPC, Stall: true}),
			to.Control.Net(ctx, fault.Command{Name: "in " + from.RPC, Ops: "read", Glob: from.RPC, Stall: true}))
	}
	return errors.Join(errs...)
}

func (n *Nemesis) disk(ctx context.Context, kind FaultKind, victim *Server) error {
	rule := fault.Command{Name: string(kind), Ops: "write,sync,syncdir,preallocate"}
	hit := []*Server{victim}
	switch kind {
	case FaultSlowDisk:
		rule.Ops, rule.Delay = "sync", n.between(20, 200)
		if n.Rng.IntN(3) == 0 {
			hit = n.C.Servers
		}
	case FaultFullDisk:
		rule.Ops, rule.Error = "write,preallocate", "ENOSPC"
		if n.Rng.IntN(3) == 0 {
			hit = n.C.Servers
		}
	case FaultBadDisk:
		rule.Error, rule.Skip = "EIO", n.Rng.IntN(20)
	case FaultStallDisk:
		rule.Stall = true
	default:
		return fmt.Errorf("unknown fault %q", kind)
	}
	var errs []error
	for _, s := range hit {
		rule.Glob = s.Dir + "/**"
		errs = append(errs, s.Control.Disk(ctx, rule))
	}
	return errors.Join(errs...)
}
