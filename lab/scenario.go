package lab

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/fault"
)

// Scenario is one fault, or none, in one kind of cluster.
type Scenario struct {
	// Name is what the command line calls it, About what happens, in a sentence.
	Name, About string
	// Code is the finding that is expected, "" when there must be none.
	Code string
	// alone: its load or fault takes the machine, or shows in what every process on it reads; other scenarios share it
	// with further runs.
	alone bool
	// single is a cluster of one server; others have three, or five.
	single bool
	// hcl is configuration beside the lab's own.
	hcl []string
	// load makes the load; nil is steady.
	load func(*environment) []stream
	// prepare starts the clusters where one of equal servers is not enough; nil is that.
	prepare func(context.Context, *environment) error
	// inject makes the fault and returns what the finding's culprit must contain; nil in a healthy scenario and in one
	// with steps.
	inject func(context.Context, *environment) (culprit string, err error)
	// steps are changes one after the other, each with what the doctor must say then.
	steps []step
}

// step is one change, and what the doctor must say afterwards.
type step struct {
	about string
	do    func(context.Context, *environment) (expected, error)
}

// expected is what a report must say.
type expected struct {
	first finding
	// also are findings that stand behind the first, in any order.
	also []finding
	// gone are findings of which none may be left; then there is no first one.
	gone []finding
	// denies are words of lines in which the first finding says what it is not.
	denies []string
}

// finding is a code and what its culprit must contain.
type finding struct{ code, culprit string }

// Shares reports whether several runs, of this and of others that share, may go on side by side on one machine: each
// is a cluster of its own with little load, and its fault is inside its own processes.
func (s *Scenario) Shares() bool { return s.Code != "" && !s.alone }

// all are the scenario's steps; none in a healthy one.
func (s *Scenario) all() []step {
	if s.inject == nil {
		return s.steps
	}
	return []step{{"injected", func(ctx context.Context, b *environment) (expected, error) {
		culprit, err := s.inject(ctx, b)
		return expected{first: finding{s.Code, culprit}}, err
	}}}
}

// cpuFine is the line that a machine cannot say whose CPU others use up: it is not asked for above cpuBusy.
const (
	cpuFine = "the CPU is fine"
	cpuBusy = 0.8
)

// lacks says what of w a report does not say, "" when it says everything. busy is which part of this machine's CPU
// was in use.
func (w *expected) lacks(r *doctor.Report, busy float64) string {
	for _, f := range w.gone {
		if slices.ContainsFunc(r.Findings, func(o doctor.Finding) bool { return f.is(&o) }) {
			return "it still finds " + f.code + ": " + f.culprit
		}
	}
	if len(w.gone) > 0 {
		return ""
	}
	if len(r.Findings) == 0 {
		return "there is no finding"
	}
	first := &r.Findings[0]
	if !w.first.is(first) {
		return "the first finding is " + first.Code + ": " + first.Culprit
	}
	for _, f := range w.also {
		if !slices.ContainsFunc(r.Findings[1:], func(o doctor.Finding) bool { return f.is(&o) }) {
			return "no finding " + f.code + ": " + f.culprit
		}
	}
	for _, text := range w.denies {
		if text == cpuFine && busy > cpuBusy {
			continue
		}
		if !slices.ContainsFunc(first.Not, func(l doctor.Line) bool { return strings.Contains(l.Text, text) }) {
			return "it does not say: " + text
		}
	}
	return ""
}

func (f *finding) is(o *doctor.Finding) bool {
	return o.Code == f.code && strings.Contains(o.Culprit, f.culprit)
}

// Scenarios are all that there are, in the order in which they run.
var Scenarios = []Scenario{
	{Name: "healthy-quiet", About: "no fault, a little load"},
	{Name: "healthy-busy", About: "no fault, as many writes and registrations as the cluster takes", load: full},
	{Name: "healthy-kv", About: "no fault, corbel bench kv", prepare: busy(half, "kv"), load: noLoad},
	{Name: "healthy-catalog", About: "no fault, corbel bench register", prepare: busy(whole, "register"), load: noLoad},
	{Name: "healthy-dns", About: "no fault, corbel bench dns", prepare: busy(whole, "dns"), load: noLoad},
	{Name: "healthy-propagation", About: "no fault, corbel bench propagation with 2,000 proxies",
		prepare: busy(rounds, "propagation", "--nodes", "200", "--proxies", "2000", "--services", "100", "--envoys", "0"),
		load:    noLoad},
	{Name: "healthy-agents", About: "no fault, corbel bench agents with 500 agents",
		prepare: busy(whole, "agents", "--agents", "500"), load: noLoad},
	{Name: "healthy-secrets", About: "no fault, corbel bench secrets", prepare: busySecrets("secrets", "-d", "12s"),
		load: noLoad},
	{Name: "healthy-leases", About: "no fault, corbel bench leases: a tree of tokens and a prefix of logins are revoked",
		prepare: busySecrets("leases", "--leases", "20000", "-d", "5s"), load: noLoad},
	{Name: "blocked-sink",
		About: "the leader's metrics go to a sink that is called in line and read a few bytes at a time",
		Code:  "metrics-sink-blocks", inject: blockSink},
	{Name: "stalled-disk", About: "no sync on the leader's disk returns", Code: "disk-stalled", inject: stallDisk},
	{Name: "slow-disk", About: "each sync on the leader's disk takes 150 ms longer", Code: "disk-slow", inject: slowDisk},
	{Name: "clock-skew", About: "the clock of a follower goes three seconds ahead", Code: "clock-skew", inject: skewClock},
	{Name: "exhausted-descriptors", About: "clients take all descriptors that a follower may have",
		Code: "descriptors-exhausted", inject: exhaustDescriptors},
	{Name: "slow-subscriber", About: "a client asks a follower for much and reads nothing of it", Code: "subscriber-slow",
		inject: stopReading},
	{Name: "handler-hangs", About: "a handler of the monitor gets events and does not end", Code: "handler-hangs",
		single: true, hcl: []string{monitorConfig}, inject: hangHandler},
	{Name: "unheard-events", About: "a check's events go to a handler that does not exist", Code: "events-reach-nobody",
		single: true, hcl: []string{monitorConfig}, inject: nameNobody},
	{Name: "deaf-sink", About: "the statsd server that metrics go to ends", Code: "metrics-sink-deaf",
		prepare: listening, inject: deafen},
	{Name: "request-memory", About: "clients begin large writes and do not end them", Code: "request-memory-full",
		hcl: []string{smallBudget}, inject: holdMemory},
	{Name: "no-spare", About: "one of three servers is killed, or two of five", Code: "no-spare-voter",
		steps: []step{{"killed", killFollower}}},
	{Name: "proxy-throttled", About: "the CPU quota of an Envoy on this host is lowered below what it uses",
		Code: "proxy-throttled", alone: true, inject: throttleProxy},
	{Name: "storage-sink-blocks", About: "secrets on Consul storage whose leader's dogstatsd sink blocks, while leases " +
		"are revoked in a mass and a herd of tokens is renewed", Code: "metrics-sink-blocks", alone: true,
		prepare: secretsWithStorm, load: writing, steps: []step{{"a blocked sink, a storm and a herd", blockStorageSink}}},
	{Name: "disk-and-sink", About: "the leader's disk stalls and its sink blocks; then the disk is mended",
		Code:  "disk-stalled",
		steps: []step{{"both", stalledAndBlocked}, {"the disk is mended", mendDisk}}},
	{Name: "sink-and-disk", About: "the leader's disk stalls and its sink blocks; then the sink is mended",
		Code:  "disk-stalled",
		steps: []step{{"both", stalledAndBlocked}, {"the sink is mended", mendSink}}},
	{Name: "slow-postgres", About: "secrets on a PostgreSQL whose syncs take 200 ms longer", Code: "storage-slow",
		prepare: secretsOnPostgres, load: writing, inject: slowPostgres},
	{Name: "consul-without-quorum", About: "secrets on Consul storage that loses its quorum", Code: "storage-slow",
		prepare: secretsOnConsul, load: writing,
		steps: []step{{"the secrets' cluster is asked", loseQuorum}, {"both are asked", askStorage}}},
	{Name: "revocation-storm", About: "a mass of leases is revoked after the maintenance of their database, which does " +
		"not come back", Code: "revocation-storm", alone: true,
		prepare: secretsOfDatabase, load: writing, inject: resumeRevocation},
	{Name: "storage-amplified", About: "each write of a secret is stored three times where once is enough",
		Code: "storage-amplified", prepare: secretsOnFile, load: writing, inject: amplify},
	{Name: "noisy-tenant", About: "one client writes with 2,000 connections as fast as it can", Code: "noisy-tenant",
		alone: true, inject: flood},
	{Name: "packet-loss", About: "one in twelve packets from the server to one of three agents is lost",
		Code: "packet-loss", prepare: hosts, load: throughAgents, inject: losePackets},
	{Name: "connection-resets", About: "a middlebox resets connections between the server and one of three agents",
		Code: "packet-loss", prepare: hosts, load: throughAgents, inject: resetConnections},
	{Name: "terminating-instance", About: "a client goes on to connect to an instance that is being drained",
		Code: "terminating-instance", single: true, inject: drainBusy},
	{Name: "proxy-and-terminating", About: "a proxy is stopped by its quota, and an instance that is being drained is " +
		"asked still; then the proxy is mended", Code: "proxy-throttled", alone: true, single: true,
		steps: []step{{"both", throttleAndDrain}, {"the proxy is mended", giveQuota}}},
	{Name: "goroutines-grow", About: "a client asks without end on ever new connections and never hangs up",
		Code: "goroutines-grow", alone: true, single: true, inject: leakRequests},
	{Name: "allowance-exceeded", About: "the leader's network card goes beyond its bandwidth allowance (synthetic " +
		"counters)", Code: "allowance-exceeded", inject: exceedAllowance},
	{Name: "one-transmit-queue", About: "one of eight queues of the leader's network card sends everything (synthetic " +
		"counters)", Code: "one-transmit-queue", inject: useOneQueue},
	{Name: "usage-cold-counters", About: "counters of usage start with empty local caches, and ask the remote cache for " +
		"what it does not know", Code: "usage-cache-cold", single: true, prepare: cached, inject: goCold},
	{Name: "usage-terminating-cache", About: "a cache host drains, and a client that knows no health check goes on to " +
		"use it",
		Code: "usage-drain-waits", single: true, prepare: cached, inject: drainCache},
	{Name: "usage-story", About: "cold counters, a throttled proxy, one transmit queue, an exceeded allowance " +
		"(synthetic counters) and a terminating cache host at once; then they are removed one by one",
		Code:  "allowance-exceeded",
		alone: true, single: true, prepare: cached, steps: usageStory},
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

// blockSink gives the leader a sink that blocks.
func blockSink(ctx context.Context, b *environment) (string, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	return "lab", b.blockSinkOf(ctx, leader, "lab", 64)
}

// blockSinkOf gives a server a sink whose reader takes so many bytes fifty times a second.
func (b *environment) blockSinkOf(ctx context.Context, s *server, name string, bytes int) error {
	path := filepath.Join(b.dir, "sink.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	b.load.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		few := make([]byte, bytes)
		for {
			if _, err := conn.Read(few); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // the fault itself
		}
	})
	b.later(func() { _ = l.Close() })
	_, err = s.Control.Do(ctx, fault.Command{Do: fault.DoSink, Name: name, Glob: path})
	return err
}

func stallDisk(ctx context.Context, b *environment) (string, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	return "disk of " + leader.Name, leader.Control.Disk(ctx, fault.Command{Name: "stall", Ops: "sync", Stall: true})
}

func slowDisk(ctx context.Context, b *environment) (string, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	return "disk of " + leader.Name, leader.Control.Disk(ctx,
		fault.Command{Name: "slow", Ops: "sync", Delay: 150 * time.Millisecond})
}

func skewClock(ctx context.Context, b *environment) (string, error) {
	s, err := b.follower(ctx)
	if err != nil {
		return "", err
	}
	return "clock of " + s.Name, s.Control.SetClock(ctx, 3*time.Second, 1)
}
