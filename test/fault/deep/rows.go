package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
	"corbel.dev/corbel/test/fault/catalogruns"
	"corbel.dev/corbel/test/fault/jobsruns"
	"corbel.dev/corbel/test/fault/meshruns"
	"corbel.dev/corbel/test/fault/monitorruns"
	"corbel.dev/corbel/test/fault/secretsruns"
	"corbel.dev/corbel/test/fault/upgraderuns"
	"corbel.dev/corbel/test/fault/usageruns"

	faultrun "corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/flood"
	"corbel.dev/corbel/test/kafka"
)

// done is what one seed of a row did: counts by name, and times worth a quantile.
type done struct {
	Counts map[string]int
	Times  []time.Duration
}

// row is a scenario that the deep command repeats with ever new seeds.
type row struct {
	name string
	// what its unit and its times are, for the table.
	what string
	// share is how much of the time it gets beside the others, takes how long a seed needs at least.
	share float64
	takes time.Duration
	// alone rows measure latencies: nothing runs beside them.
	alone bool
	run   func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error)
}

var rows = []row{
	{"linear", "A1, A2: histories of 60 s, all faults mixed, 8 clients", 20, 90 * time.Second, false, linear},
	{"crash-three", "A4: kill -9 cycles of three servers; time from start to consistent reads", 44,
		40 * time.Second, false,
		crash(catalogruns.Crash{Servers: 3, Cycles: 25, Writers: 4, Load: 150 * time.Millisecond})},
	{"crash-one", "A4: kill -9 cycles of one server; time from start to consistent reads", 14, 25 * time.Second, false,
		crash(catalogruns.Crash{Servers: 1, Cycles: 40, Writers: 4, Load: 150 * time.Millisecond})},
	{"crash-compacted", "A9: kill -9 cycles of three servers that snapshot all the time", 7, 30 * time.Second, false,
		crash(catalogruns.Crash{Servers: 3, Cycles: 15, Snapshots: true})},
	{"secrets-one", "A4, secrets plane: kill -9 cycles of one server; time until everything was read", 5,
		30 * time.Second, false,
		secretsCrash(secretsruns.Secrets{Servers: 1, Cycles: 25})},
	{"secrets-file", "A4, secrets plane on a folder: kill -9 and power loss cycles of one server; time until " +
		"everything was read", 3, 30 * time.Second, false,
		secretsCrash(secretsruns.Secrets{Storage: "file", Servers: 1, Cycles: 25})},
	{"secrets-three", "A4, secrets plane: kill -9 of one of three servers, or the active one stopped and woken up", 10,
		60 * time.Second, false,
		secretsCrash(secretsruns.Secrets{Servers: 3, Cycles: 20, Freeze: true})},
	{"secrets-pg", "A4, secrets plane on PostgreSQL: kill -9 of the server or of PostgreSQL; time until everything was " +
		"read", 5, 30 * time.Second, false,
		withPostgres(secretsCrash(secretsruns.Secrets{Storage: "postgresql", Servers: 1, Cycles: 25}))},
	{"secrets-pg-two", "the same with two servers, the active one stopped and woken up in each second cycle", 8,
		4 * time.Minute, false,
		withPostgres(secretsCrash(secretsruns.Secrets{Storage: "postgresql", Servers: 2, Cycles: 10, Freeze: true}))},
	{"secrets-roles", "A4, secrets plane on Raft: as secrets-three, with roles made in PostgreSQL", 3,
		60 * time.Second, false,
		withPostgres(secretsCrash(secretsruns.Secrets{Roles: true, Servers: 3, Cycles: 10, Freeze: true}))},
	{"secrets-linear", "A1, secrets plane: histories of KV v2 with check-and-set of 30 s on three servers, all faults " +
		"mixed, 6 clients", 4, 60 * time.Second, false, secretsLinear},
	{"secrets-outage", "B8, secrets plane: PostgreSQL gone for 60 s or hung for 20 under load; time until the next write",
		1, 100 * time.Second, true, withPostgres(outage)},
	{"monitor-one", "A4, monitor plane: kill -9 cycles of one server; time until every server told of all events", 5,
		60 * time.Second, false,
		monitorCrash(monitorruns.MonitorCrash{Servers: 1, Cycles: 15})},
	{"monitor-three", "A4, monitor plane: kill -9 of one, two or all of three servers, half of the time until others " +
		"took over", 12, 100 * time.Second, false,
		monitorCrash(monitorruns.MonitorCrash{Servers: 3, Cycles: 10})},
	{"monitor-faults", "B3, B4, B7, monitor plane: clients that misbehave, handlers that hang, clocks that jump, " +
		"broken disks, herds, kills; time until an agent has a session elsewhere",
		3, 70 * time.Second, false, monitorFaults(monitorruns.MonitorFaults{Bystanders: 500, Back: 5 * time.Second})},
	{"monitor-disks", "B3, monitor plane: an event store that is slow, full or hangs, as in monitor-faults, alone; " +
		"time until a server whose disk hung owned nothing",
		1, 60 * time.Second, false, monitorDisks},
	{"monitor-keepalives", "E, monitor plane: a server that stays away, all of them, a herd, with the usual keepalives " +
		"of 20 and 120 s; time until an agent has a session elsewhere",
		1, 8 * time.Minute, false, monitorFaults(monitorruns.MonitorFaults{Bystanders: 2000, Usual: true,
			Back:  5 * time.Second,
			Steps: []string{"killed", "herd", "restart"}})},
	{"monitor-outage", "B8, monitor plane: PostgreSQL gone for 60 s, or hung for as long, under results, one server " +
		"stopped meanwhile; time until it had everything",
		2, 2 * time.Minute, false, withPostgres(monitorOutage)},
	{"usage", "usage plane: histories of events, retries, duplicates, late ones and voids on three servers, one or all " +
		"killed in each cycle; every estimate against an exact model; time until all served again", 10,
		4 * time.Minute, false,
		usageCrash(usageruns.Usage{Servers: 3, Cycles: 15, Load: 2 * time.Second})},
	{"usage-one", "the same on one server", 4, 75 * time.Second, false,
		usageCrash(usageruns.Usage{Servers: 1, Cycles: 50, Load: 500 * time.Millisecond})},
	{"usage-kafka", "the same with the log in three real brokers of Kafka, of which one is killed in most cycles, with " +
		"servers or alone", 1, 5 * time.Minute, false, usageKafka},
	{"usage-warm", "usage plane: one of three servers killed in each cycle and begun from copies in S3, some of them " +
		"slow, while events come; every estimate against an exact model; time until it was ready", 4, time.Minute, false,
		usageWarm},
	{"usage-faults", "usage plane: histories of 60 s on three servers that are killed, frozen and cut off, and whose " +
		"disks are full, broken, slow or hang, one fault after the other; every estimate against an exact model", 4,
		100 * time.Second, false, usageFaults},
	{"usage-roll", "usage plane: three servers stopped in order and started, one by one, under half of the load that " +
		"they take; every estimate against an exact model; how long batches took", 1, time.Minute, true, usageRoll},
	{"jobs", "A4, jobs plane: kill -9 and power loss cycles of three servers while jobs are registered, updated, " +
		"stopped and dispatched; time until every server answered", 10, 3 * time.Minute, false,
		jobsCrash(jobsruns.Crash{Servers: 3, Nodes: 30, Cycles: 25})},
	{"jobs-one", "the same on one server", 4, 90 * time.Second, false,
		jobsCrash(jobsruns.Crash{Servers: 1, Nodes: 30, Cycles: 25})},
	{"jobs-faults", "jobs plane: leaders killed while they place, a tenth of the nodes dead at once, 3,000 of 3,300 " +
		"cut off for a moment or until they are taken for dead; time from a leader's end to the next placement", 2,
		8 * time.Minute, true, jobsFaults(3300)},
	{"jobs-faults-third", "the same with 1,100 nodes, of which 1,000 are cut off: what two cores hold", 1, 5 * time.Minute,
		true, jobsFaults(1100)},
	{"jobs-beside", "jobs plane: placements beside metrics sinks that stall, and beside a secrets plane that takes 30 s " +
		"for an answer, in pairs with quiet ones; what of the rate is left, in percent", 1, 8 * time.Minute, true,
		jobsBeside},
	{"watch", "A3: blocking queries of keys, prefixes and services across faults, 30 s", 5, 40 * time.Second,
		false, watch},
	{"disk-errors", "A7: ENOSPC and EIO on each kind of operation, after ever more that go well; worst time until " +
		"writes resume", 4,
		20 * time.Second, false, diskErrors},
	{"streams", "A3: streams of discovery across kills, stops and changes of leader, 8 rounds; what came again is what " +
		"a proxy had", 3, 25 * time.Second, false, streams},
	{"refusals", "B10: 1,000 proxies refuse one listener; values built, responses sent, content sent again", 1,
		10 * time.Second, false, refusals},
	{"slow-streams", "B2: 1 % of 1,000 streams of discovery read one byte a second, until they are cut", 1,
		180 * time.Second, false, slowStreams},
	{"torn", "A4: bytes cut off the newest segment of one of three", 3, 8 * time.Second, false, torn},
	{"rot", "A6: one bit of one file of one of three inverted; time until it has everything again", 6, 30 * time.Second,
		false, rot},
	{"wiped", "E: a member that lost everything is replaced; time until it votes", 3, 25 * time.Second, false, wiped},
	{"hostile", "A13: 100 schedules of members that lie by gossip, under a load, with elections, freezes and kills", 4,
		12 * time.Minute, false, hostile},
	{"frozen", "A14: servers stopped for 1-20 s in turns, each second time two of three; time until the next write", 3,
		4 * time.Minute, false, frozen},
	{"bytes",
		"B12: 200 clients of each port with what is large, from four addresses; the slowest of each 100 small writes",
		1, 100 * time.Second, false, bytesBounded},
	{"tenants", "B13: hostile JavaScript in filters and a mutator for a minute, the catalog beside", 1, 80 * time.Second,
		false, tenants},
	{"disk-stall", "A8: the disk of the leader hangs for 1, 5, 30 s; time until the next write", 1, 90 * time.Second,
		true, stall},
	{"failover", "E: leader kill -9; time until the first acknowledged write", 1, 25 * time.Second, true, failover},
	{"transfer", "E: planned change of leader; longest gap between writes", 1, 25 * time.Second, true, transfer},
	{"rolling", "E: rolling restart of three; longest gap between consistent reads of clients that retry", 1,
		8 * time.Second, true, rolling},
	{"upgrade", "E: the last release to this one and back, server by server, catalog and secrets, under load; slowest " +
		"request through an agent, none of which may fail", 1, 60 * time.Second, true, upgrade},
	{"secrets-roll", "E, secrets plane: a step-down, then each of three servers stopped and started; longest write of " +
		"clients that retry", 1, 12 * time.Second, true, secretsRoll},
	{"cut", "E: the leader cut off in network namespaces; time until the next write", 1, 40 * time.Second, true, cut},
}

func names() []string {
	var list []string
	for _, r := range rows {
		list = append(list, r.name)
	}
	return list
}

func linear(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := l.RunLinear(ctx, faultrun.Linear{Duration: time.Minute, Judge: 2 * time.Minute}, seed)
	faults := 0
	for _, n := range r.Faults {
		faults += n
	}
	return done{Counts: map[string]int{"histories": 1, "operations": r.Operations + r.LockOperations, "unknown": r.Unknown,
		"faults":        faults,
		"default reads": r.Bounds.DefaultReads, "stale reads": r.Bounds.StaleReads}}, err
}

func secretsLinear(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := secretsruns.RunSecretsLinear(ctx, l, faultrun.Linear{Duration: 30 * time.Second, Judge: 2 * time.Minute},
		seed)
	faults := 0
	for _, n := range r.Faults {
		faults += n
	}
	return done{Counts: map[string]int{"histories": 1, "operations": r.Operations, "unknown": r.Unknown,
		"faults": faults}}, err
}

func tenants(ctx context.Context, l *faultrun.Lab, _ uint64) (done, error) {
	r, err := catalogruns.RunTenants(ctx, l, time.Minute)
	return done{Counts: map[string]int{"programs": r.Programs, "writes beside": r.Beside}}, err
}

func bytesBounded(ctx context.Context, l *faultrun.Lab, _ uint64) (done, error) {
	r, err := flood.Run(ctx, l, flood.Config{Clients: 200, Budget: 256 << 20, Rounds: 3, Lasts: 20 * time.Second})
	d := done{Counts: map[string]int{"writes beside": len(r.Beside)}}
	for chunk := range slices.Chunk(r.Beside, 100) {
		d.Times = append(d.Times, slices.Max(chunk))
	}
	for _, port := range r.Ports {
		for outcome, n := range port {
			d.Counts[string(outcome)] += n
		}
	}
	return d, err
}

func crash(cfg catalogruns.Crash) func(context.Context, *faultrun.Lab, uint64) (done, error) {
	return func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
		r, err := catalogruns.RunCrash(ctx, l, cfg, seed)
		return done{map[string]int{"cycles": r.Cycles, "acknowledged": r.Acked, "power losses": r.Powerless}, r.Starts}, err
	}
}

func secretsCrash(cfg secretsruns.Secrets) func(context.Context, *faultrun.Lab, uint64) (done, error) {
	return func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
		r, err := secretsruns.RunSecrets(ctx, l, cfg, seed)
		if r == nil {
			r = &secretsruns.SecretsReport{}
		}
		return done{map[string]int{"cycles": r.Cycles, "acknowledged": r.Acked, "power losses": r.Powerless,
			"tokens revoked": r.Revoked, "logins": r.Logins, "unwrapped": r.Unwrapped,
			"uses": r.Limited, "roles": r.Roles, "fenced": r.Fenced, "reads of standbys": r.StandbyReads}, r.Starts}, err
	}
}

func usageCrash(cfg usageruns.Usage) runner {
	return func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
		r, err := usageruns.Run(ctx, l, cfg, seed)
		d := done{map[string]int{"cycles": r.Cycles, "events": r.Events, "sent again": r.Retries,
			"duplicates": r.Duplicates, "late": r.Late, "voids": r.Voids, "values judged": r.Judged}, r.Starts}
		if cfg.Brokers != nil {
			d.Counts["brokers killed"] = r.Brokers
		}
		return d, err
	}
}

func usageRoll(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := usageruns.RunRoll(ctx, l, usageruns.Roll{}, seed)
	q := catalogruns.Quantile
	fmt.Printf("usage-roll: %.0f batches/s were taken; at half of it: quiet p50 %v, p99 %v of %d; rolled p50 %v, p99 %v "+
		"of %d\n", r.Capacity, q(r.Quiet, 0.5), q(r.Quiet, 0.99), len(r.Quiet), q(r.Rolled, 0.5), q(r.Rolled, 0.99),
		len(r.Rolled))
	for _, text := range r.Slow {
		fmt.Println("usage-roll:", text)
	}
	return done{map[string]int{"servers stopped": r.Cycles, "events": r.Events, "sent again": r.Retries,
		"answered with an error": r.Refused, "values judged": r.Judged}, r.Rolled}, err
}

func usageWarm(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := usageruns.RunWarm(ctx, l, usageruns.Warm{Cycles: 8}, seed)
	return done{map[string]int{"cycles": r.Cycles, "events": r.Events, "events while a server began": r.Meanwhile,
		"sent again": r.Retries, "duplicates": r.Duplicates, "values judged": r.Judged}, r.Starts}, err
}

func usageFaults(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := usageruns.RunFaults(ctx, l, usageruns.Faults{Duration: time.Minute}, seed)
	counts := map[string]int{"histories": 1, "events": r.Events, "sent again": r.Retries, "duplicates": r.Duplicates,
		"late": r.Late, "voids": r.Voids, "values judged": r.Judged}
	for kind, n := range r.Faults {
		counts["faults"] += n
		if kind == faultrun.FaultPartition || kind == faultrun.FaultOneWay {
			counts["cuts"] += n
		}
	}
	return done{counts, nil}, err
}

func usageKafka(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	dir, err := os.MkdirTemp("", "corbel-kafka-")
	if err != nil {
		return done{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	brokers, err := kafka.Open(ctx, dir, 3)
	if errors.Is(err, kafka.ErrMissing) {
		return done{}, fmt.Errorf("%w: %w", errNotRun, err)
	}
	if err != nil {
		return done{}, err
	}
	defer brokers.Close()
	return usageCrash(usageruns.Usage{Servers: 3, Cycles: 15, Load: 2 * time.Second, Brokers: brokers})(ctx, l, seed)
}

func jobsCrash(cfg jobsruns.Crash) runner {
	return func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
		r, err := jobsruns.RunCrash(ctx, l, cfg, seed)
		return done{map[string]int{"cycles": r.Cycles, "power losses": r.Powerless, "changes": r.Changes,
			"sent again": r.Retries, "dispatches": r.Dispatches, "allocations": r.Allocations}, r.Starts}, err
	}
}

func jobsFaults(nodes int) runner {
	return func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
		r, err := jobsruns.RunFaults(ctx, l, jobsruns.Faults{Nodes: nodes, Cut: nodes * 10 / 11, Long: seed%2 == 0,
			Leaders: 3}, seed)
		return done{map[string]int{"faults": r.Steps, "leaders killed": len(r.Resumed), "placed meanwhile": r.Placed,
			"nodes killed": r.Killed, "nodes cut off": r.Cut}, r.Resumed}, err
	}
}

func jobsBeside(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := jobsruns.RunBeside(ctx, l, jobsruns.Beside{Pairs: 5, Allocations: 1000, Answer: 30 * time.Second,
		Least: 0.9}, seed)
	return done{Counts: map[string]int{"pairs": len(r.Sink) + len(r.Secrets), "tokens": r.Tokens,
		"metrics dropped": int(r.Dropped)}}, err
}

func monitorCrash(cfg monitorruns.MonitorCrash) func(context.Context, *faultrun.Lab, uint64) (done, error) {
	return func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
		r, err := monitorruns.RunMonitorCrash(ctx, l, cfg, seed)
		return done{map[string]int{"cycles": r.Cycles, "power losses": r.Powerless, "results": r.Results,
			"lost that were read": r.Lost, "of these over 50 ms before the kill": r.LostLate,
			"sessions regained": len(r.Back), "dead agents found": r.Missed}, r.Starts}, err
	}
}

// faultSteps are those that --steps names, nil is all of a row.
var faultSteps []string

func monitorFaults(cfg monitorruns.MonitorFaults) runner {
	return func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
		if faultSteps != nil {
			cfg.Steps = faultSteps
		}
		r, err := monitorruns.RunMonitorFaults(ctx, l, cfg, seed)
		return done{map[string]int{"faults": r.Steps, "results": r.Results, "sessions regained": len(r.Back)}, r.Back}, err
	}
}

func monitorDisks(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := monitorruns.RunMonitorFaults(ctx, l, monitorruns.MonitorFaults{Steps: []string{"slow disk", "full disk",
		"hung disk"}}, seed)
	return done{map[string]int{"faults": r.Steps, "results": r.Results}, []time.Duration{r.Moved}}, err
}

func monitorOutage(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := monitorruns.RunMonitorOutage(ctx, l, monitorruns.MonitorOutage{For: time.Minute, Hung: seed%2 == 0,
		Sleep: 4 * time.Second},
		seed)
	return done{map[string]int{"outages": 1, "results": r.Results, "changes of status": r.Changes,
		"lost in the history": r.Lost}, []time.Duration{r.Recovered}}, err
}

type runner = func(context.Context, *faultrun.Lab, uint64) (done, error)

// withPostgres is a row that needs one.
func withPostgres(run runner) runner {
	return func(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
		if _, err := pgtest.Bin(); err != nil {
			return done{}, errors.Join(errNotRun, err)
		}
		return run(ctx, l, seed)
	}
}

func outage(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	cfg := secretsruns.Outage{Servers: 1 + int(seed/2%2), For: time.Minute}
	if seed%2 == 1 {
		cfg.Hung, cfg.For = true, 20*time.Second
	}
	r, err := secretsruns.RunOutage(ctx, l, cfg, seed)
	if r == nil {
		return done{}, err
	}
	return done{map[string]int{"outages": 1, "refused": r.Meanwhile[503], "unknown": r.Meanwhile[500] + r.Meanwhile[502]},
		[]time.Duration{r.Recovered}}, err
}

func watch(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	faults := []faultrun.FaultKind{faultrun.FaultKill, faultrun.FaultKillAll, faultrun.FaultFreeze,
		faultrun.FaultPartition,
		faultrun.FaultOneWay, faultrun.FaultTransfer, faultrun.FaultClock, faultrun.FaultSlowDisk}
	r, err := catalogruns.RunWatch(ctx, l, catalogruns.Watch{Duration: 30 * time.Second, Faults: faults}, seed)
	return done{Counts: map[string]int{"runs": 1, "answers": r.Answers, "writes": r.Writes}}, err
}

func diskErrors(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := catalogruns.RunDiskErrors(ctx, l, int(seed%60))
	return done{map[string]int{"sites": r.Sites, "refused": r.Refused, "reads": r.Reads}, []time.Duration{r.Resumed}}, err
}

func streams(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := meshruns.RunResume(ctx, l, 200, 8, seed)
	return done{Counts: map[string]int{"runs": 1, "reconnects": r.Reconnects, "changes": r.Changes, "again": r.Again}}, err
}

func refusals(ctx context.Context, l *faultrun.Lab, _ uint64) (done, error) {
	r, err := meshruns.RunRefusals(ctx, l, 1000)
	return done{Counts: map[string]int{"runs": 1, "refusals": r.Refusals, "built": r.Builds, "sent": r.Responses,
		"sent again": r.Resent}}, err
}

func slowStreams(ctx context.Context, l *faultrun.Lab, _ uint64) (done, error) {
	r, err := meshruns.RunSlowStreams(ctx, l, 990, 10, 0)
	return done{Counts: map[string]int{"runs": 1, "changes": r.Changes, "cut": r.Slow}}, err
}

func hostile(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := catalogruns.RunHostile(ctx, l, catalogruns.Hostile{Schedules: 100, Each: 6 * time.Second}, seed)
	return done{Counts: map[string]int{"schedules": r.Schedules, "liars": r.Liars, "looks at the members": r.Looks,
		"calls of intruders": r.Calls, "acknowledged": r.Acked}}, err
}

func frozen(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := catalogruns.RunFrozen(ctx, l, catalogruns.Frozen{Rounds: 8, Least: time.Second, Most: 20 * time.Second},
		seed)
	return done{map[string]int{"freezes": r.Freezes, "of two in a row": r.Pairs, "writes": r.Writes}, r.Resumed}, err
}

func stall(ctx context.Context, l *faultrun.Lab, _ uint64) (done, error) {
	r, err := catalogruns.RunStall(ctx, l, time.Second, 5*time.Second, 30*time.Second)
	return done{map[string]int{"stalls": len(r.Leader) + len(r.Follower)}, r.Leader}, err
}

func torn(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	return done{Counts: map[string]int{"cuts": 1}}, catalogruns.RunTorn(ctx, l, int64(1+seed*seed%8000), seed)
}

func rot(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := catalogruns.RunRot(ctx, l, 6, seed)
	return done{map[string]int{"flips": r.Flips, "refused": r.Refused}, r.Healed}, err
}

func wiped(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	took, err := catalogruns.RunWiped(ctx, l, seed)
	return done{map[string]int{"replaced": 1}, []time.Duration{took}}, err
}

func failover(ctx context.Context, l *faultrun.Lab, _ uint64) (done, error) {
	r, err := catalogruns.RunFailover(ctx, l, 15)
	return done{map[string]int{"kills": len(r.Pauses)}, r.Pauses}, err
}

func transfer(ctx context.Context, l *faultrun.Lab, _ uint64) (done, error) {
	r, err := catalogruns.RunTransfer(ctx, l, 15)
	return done{map[string]int{"transfers": len(r.Pauses), "writes": r.Writes, "retried": r.Retried, "failed": r.Failed},
		r.Pauses}, err
}

func rolling(ctx context.Context, l *faultrun.Lab, _ uint64) (done, error) {
	r, err := catalogruns.RunRolling(ctx, l)
	return done{map[string]int{"restarts": 3, "reads": r.Reads, "retried": r.Retried, "failed": r.Failed},
		[]time.Duration{r.Longest}}, err
}

func upgrade(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	last, err := upgraderuns.Last(ctx, ".cache/last")
	if errors.Is(err, upgraderuns.ErrNoHistory) {
		return done{}, errors.Join(errNotRun, err)
	}
	if err != nil {
		return done{}, err
	}
	r, err := upgraderuns.Run(ctx, l, upgraderuns.Upgrade{Last: last}, seed)
	if r == nil {
		return done{}, err
	}
	if err == nil {
		var secrets *secretsruns.SecretsRollReport
		if secrets, err = secretsruns.RunSecretsUpgrade(ctx, l, last, seed); err == nil {
			r.Replaced += 6
			r.Writes += secrets.Writes
		}
	}
	return done{map[string]int{"processes replaced": r.Replaced, "requests": r.Requests, "writes": r.Writes,
		"failed": r.Failed}, []time.Duration{r.Slowest}}, err
}

func secretsRoll(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	r, err := secretsruns.RunSecretsRoll(ctx, l, seed)
	if r == nil {
		return done{}, err
	}
	return done{map[string]int{"restarts": 3, "writes": r.Writes, "retried": r.Retried}, []time.Duration{r.Longest}}, err
}

func cut(ctx context.Context, l *faultrun.Lab, seed uint64) (done, error) {
	if err := netns.Available(); err != nil {
		return done{}, errors.Join(errNotRun, err)
	}
	r, err := catalogruns.RunNamespaces(ctx, l, seed)
	return done{map[string]int{"cuts": 1}, []time.Duration{r.Resumed}}, err
}
