package registry

import (
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/telemetry"
)

// meters are made once; all of them are nil-safe.
type meters struct {
	// apply: from proposing to applied, by command, on the server that proposed.
	apply map[catalog.Op]*telemetry.Timing
	// fsm: applying one command, as its share of the batch.
	fsm map[catalog.Op]*telemetry.Timing
	// notify: from the begin of a batch until its waiters are woken.
	notify *telemetry.Timing

	// costs accounts for each kind of command: applied and notified in what time,
	// with how many log operations, bytes and fsyncs.
	costs *telemetry.Stages

	blocking         *telemetry.Gauge
	renew, expire    *telemetry.Timing
	reconcile, reap  *telemetry.Timing
	lockDelayRefused *telemetry.Counter
}

func newMeters(r *Registry, t *telemetry.Registry) *meters {
	kv, session, register := t.Timing("kvs.apply"), t.Timing("session.apply"), t.Timing("catalog.register")
	fsmSession, fsmRegister := t.Timing("fsm.session"), t.Timing("fsm.register")
	m := &meters{
		apply: map[catalog.Op]*telemetry.Timing{
			catalog.OpKV: kv, catalog.OpTxn: t.Timing("txn.apply"),
			catalog.OpRegister: register, catalog.OpRegisterBatch: register,
			catalog.OpDeregister:    t.Timing("catalog.deregister"),
			catalog.OpSessionCreate: session, catalog.OpSessionDestroy: session,
			catalog.OpReapTombstones: nil, catalog.OpRecords: t.Timing("catalog.records"),
		},
		fsm: map[catalog.Op]*telemetry.Timing{
			catalog.OpKV: t.Timing("fsm.kvs"), catalog.OpTxn: t.Timing("fsm.txn"),
			catalog.OpRegister: fsmRegister, catalog.OpRegisterBatch: fsmRegister,
			catalog.OpDeregister:    t.Timing("fsm.deregister"),
			catalog.OpSessionCreate: fsmSession, catalog.OpSessionDestroy: fsmSession,
			catalog.OpReapTombstones: t.Timing("fsm.tombstone"), catalog.OpRecords: t.Timing("fsm.records"),
		},
		notify:           t.Timing("catalog.notify"),
		costs:            t.Stages("catalog", costKinds...),
		blocking:         t.Gauge("rpc.queries_blocking"),
		renew:            t.Timing("session.renew"),
		expire:           t.Timing("session_ttl.invalidate"),
		reconcile:        t.Timing("leader.reconcile"),
		reap:             t.Timing("leader.reapTombstones"),
		lockDelayRefused: t.Counter("kvs.lock_delay_refused"),
	}
	t.GaugeFunc("session_ttl.active", func() float64 { return float64(r.ttl.active()) })
	gauge := func(name string, of func(statestore.Counts) int) {
		t.GaugeFunc(name, func() float64 { return float64(of(r.Counts())) })
	}
	gauge("state.nodes", func(c statestore.Counts) int { return c.Nodes })
	gauge("state.services", func(c statestore.Counts) int { return c.Services })
	gauge("state.service_instances", func(c statestore.Counts) int { return c.Instances })
	gauge("state.connect_instances", func(c statestore.Counts) int { return c.ConnectInstances })
	gauge("state.kv_entries", func(c statestore.Counts) int { return c.KV })
	gauge("state.checks", func(c statestore.Counts) int { return c.Checks })
	gauge("state.sessions", func(c statestore.Counts) int { return c.Sessions })
	gauge("state.records", func(c statestore.Counts) int { return c.Records })
	gauge("state.tombstones", func(c statestore.Counts) int { return c.Tombstones })
	return m
}

// costKinds name the accounts of costs; a command's account is costKind.
var costKinds = []string{"register", "deregister", "kv", "session", "txn", "reap", "records"}

func costKind(op catalog.Op) int {
	switch op {
	case catalog.OpDeregister:
		return 1
	case catalog.OpKV:
		return 2
	case catalog.OpSessionCreate, catalog.OpSessionDestroy:
		return 3
	case catalog.OpTxn:
		return 4
	case catalog.OpReapTombstones, catalog.OpHorizon:
		return 5
	case catalog.OpRecords:
		return 6
	}
	return 0
}

// charge books what a batch cost this member. Operations are booked where commands are proposed, beside the requests
// that they are compared with: who applies what others proposed, or leads since a moment, has many for few requests.
// Fsyncs are the log's: a batch shares them, so its first command's kind pays, which keeps the sums right. Commands
// of a batch share their times too, so neighbours of one kind are booked at once.
func (m *meters) charge(commands []catalog.Command, bytes []int, fsyncs uint64, apply, notify time.Duration) {
	if m.costs == nil {
		return
	}
	for i := 0; i < len(commands); {
		kind, begin, sum := costKind(commands[i].Op()), i, 0
		for ; i < len(commands) && costKind(commands[i].Op()) == kind; i++ {
			sum += bytes[i]
		}
		m.costs.Charge(kind, 0, uint64(sum), fsyncs)
		fsyncs = 0
		m.costs.ObserveAll(kind, telemetry.StageApply, apply, i-begin)
		m.costs.ObserveAll(kind, telemetry.StageNotify, notify, i-begin)
	}
}

func (m *meters) applied(commands []catalog.Command, took time.Duration) {
	if len(commands) == 0 {
		return
	}
	share := took / time.Duration(len(commands))
	for _, c := range commands {
		m.fsm[c.Op()].Observe(share)
	}
}
