package lab

import (
	"context"
	"net"
	"path/filepath"
	"time"

	"corbel.dev/corbel/kit/fault"
)

// Scenario is one fault, or none, in one kind of cluster.
type Scenario struct {
	// Name is what the command line calls it, About what happens, in a sentence.
	Name, About string
	// Code is the finding that is expected, "" when there must be none.
	Code string
	// single is a cluster of one server; others have three.
	single bool
	// hcl is configuration beside the lab's own.
	hcl []string
	// load makes the load; nil is steady.
	load func() []stream
	// inject makes the fault and returns what the finding's culprit must contain; nil in a healthy scenario.
	inject func(context.Context, *bed) (culprit string, err error)
}

func (s *Scenario) servers() int {
	if s.single {
		return 1
	}
	return 3
}

// Scenarios are all that there are, in the order in which they run.
var Scenarios = []Scenario{
	{Name: "healthy-quiet", About: "no fault, a little load"},
	{Name: "healthy-busy", About: "no fault, as many writes and registrations as the cluster takes", load: full},
	{Name: "blocked-sink", About: "the leader's metrics go to a sink that is called in line and read a few bytes at a time", Code: "metrics-sink-blocks", inject: blockSink},
	{Name: "stalled-disk", About: "no sync on the leader's disk returns", Code: "disk-stalled", inject: stallDisk},
	{Name: "slow-disk", About: "each sync on the leader's disk takes 150 ms longer", Code: "disk-slow", inject: slowDisk},
	{Name: "clock-skew", About: "the clock of a follower goes three seconds ahead", Code: "clock-skew", inject: skewClock},
	{Name: "exhausted-descriptors", About: "clients take all descriptors that a follower may have", Code: "descriptors-exhausted", inject: exhaustDescriptors},
	{Name: "slow-subscriber", About: "a client asks a follower for much and reads nothing of it", Code: "subscriber-slow", inject: stopReading},
	{Name: "handler-hangs", About: "a handler of the monitor gets events and does not end", Code: "handler-hangs", single: true, hcl: []string{monitorConfig}, inject: hangHandler},
	{Name: "proxy-throttled", About: "the CPU quota of an Envoy on this host is lowered below what it uses", Code: "proxy-throttled", inject: throttleProxy},
	{Name: "allowance-exceeded", About: "the leader's network card goes beyond its bandwidth allowance (synthetic counters)", Code: "allowance-exceeded", inject: exceedAllowance},
	{Name: "one-transmit-queue", About: "one of eight queues of the leader's network card sends everything (synthetic counters)", Code: "one-transmit-queue", inject: useOneQueue},
}

// Find returns the scenario of a name, nil when there is none.
func Find(name string) *Scenario {
	for i := range Scenarios {
		if Scenarios[i].Name == name {
			return &Scenarios[i]
		}
	}
	return nil
}

// blockSink gives the leader a sink whose reader takes a few bytes at a time.
func blockSink(ctx context.Context, b *bed) (string, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, "sink.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return "", err
	}
	b.load.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		few := make([]byte, 64)
		for {
			if _, err := conn.Read(few); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // the fault itself
		}
	})
	b.later(func() { _ = l.Close() })
	const name = "lab"
	_, err = leader.control.Do(ctx, fault.Command{Do: fault.DoSink, Name: name, Glob: path})
	return name, err
}

func stallDisk(ctx context.Context, b *bed) (string, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	return "disk of " + leader.name, leader.control.Disk(ctx, fault.Command{Name: "stall", Ops: "sync", Stall: true})
}

func slowDisk(ctx context.Context, b *bed) (string, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	return "disk of " + leader.name, leader.control.Disk(ctx, fault.Command{Name: "slow", Ops: "sync", Delay: 150 * time.Millisecond})
}

func skewClock(ctx context.Context, b *bed) (string, error) {
	s, err := b.follower(ctx)
	if err != nil {
		return "", err
	}
	return "clock of " + s.name, s.control.SetClock(ctx, 3*time.Second, 1)
}
