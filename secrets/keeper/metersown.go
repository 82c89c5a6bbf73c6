package keeper

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/telemetry"
)

// ownMeters are what the keeper counts of its own work, as against that of requests. Found once.
type ownMeters struct {
	registerAuth, timesByToken *telemetry.Timing
	rootTokens                 *telemetry.Counter
	rollbackWaits              *telemetry.Timing
	rollbacks, rollbacksWait   *telemetry.Gauge
}

func newOwnMeters(r *telemetry.Registry) ownMeters {
	r.Declare(telemetry.KindCounter, "identity.entity.creation", "identity.entity.creation")
	return ownMeters{registerAuth: r.Timing("expire.register-auth"),
		timesByToken: r.Timing("expire.fetch-lease-times-by-token"),
		rootTokens:   r.Counter("token.create_root"), rollbackWaits: r.Timing("rollback.waiting"),
		rollbacks:     r.Gauge("rollback.inflight"),
		rollbacksWait: r.Gauge("rollback.queued")}
}

// tending times the background work of one mount, under the name that Vault's periodic rollbacks have. waited is since
// the round began that it is of.
func (m *meters) tending(e *mount.Entry, waited time.Duration) (done func()) {
	begin := time.Now()
	m.own.rollbackWaits.Observe(waited)
	m.own.rollbacksWait.Add(-1)
	m.own.rollbacks.Add(1)
	return func() {
		m.own.rollbacks.Add(-1)
		name, took := strings.ReplaceAll(e.Path, "/", "-"), time.Since(begin)
		m.registry.Timing("rollback.attempt." + name).Observe(took)
		m.registry.Timing("route.rollback." + name).Observe(took)
	}
}

// comeAndGo are the gauges whose labels come and go with mounts and quotas. One goroutine's: Run's.
type comeAndGo struct{ queues, jobs, quotaCount, quotaMost *telemetry.GaugeSet }

func newComeAndGo(r *telemetry.Registry) *comeAndGo {
	return &comeAndGo{r.GaugeSet("expire.job_manager.queue_length"), r.GaugeSet("expire.job_manager.total_jobs"),
		r.GaugeSet("quota.lease_count.counter"), r.GaugeSet("quota.lease_count.max")}
}

// gone takes them away: this is not the active server any more.
func (g *comeAndGo) gone() {
	for _, set := range []*telemetry.GaugeSet{g.queues, g.jobs, g.quotaCount, g.quotaMost} {
		set.Replace(nil)
	}
}

// tell sets them: what is due at each mount that has leases, and the lease-count quotas.
func (g *comeAndGo) tell(mounts []string, dueAt func(mount string) int, st *tables.Tables) {
	var queues, count, most []telemetry.Point
	total := 0
	for _, name := range mounts {
		due := dueAt(name)
		total += due
		queues = append(queues, telemetry.Point{Labels: []string{"queue_id", name}, Value: float64(due)})
	}
	g.queues.Replace(queues)
	g.jobs.Replace([]telemetry.Point{{Value: float64(total)}})
	if st != nil {
		for _, q := range st.Quotas.All() {
			if q.Type == quota.LeaseCount {
				labels := []string{"name", q.Name}
				count = append(count, telemetry.Point{Labels: labels, Value: float64(q.Leases.Load())})
				most = append(most, telemetry.Point{Labels: labels, Value: float64(q.MaxLeases)})
			}
		}
	}
	g.quotaCount.Replace(count)
	g.quotaMost.Replace(most)
}

// mountSizes are how many mounts there are and how large their records, by whether they are of logins and whether
// they are local.
type mountSizes struct {
	of             *mount.Table
	entries, bytes [2][2]int
}

// sizes keeps those of the table of now.
type sizes struct{ last atomic.Pointer[mountSizes] }

func (s *sizes) take(st *tables.Tables) *mountSizes {
	if st == nil {
		return &mountSizes{}
	}
	if known := s.last.Load(); known != nil && known.of == st.Mounts {
		return known
	}
	out := &mountSizes{of: st.Mounts}
	for _, e := range st.Mounts.All() {
		raw, err := json.Marshal(e)
		if err != nil {
			continue // it was read from such a record
		}
		auth, local := int(one(e.Auth())), int(one(e.Local))
		out.entries[auth][local]++
		out.bytes[auth][local] += len(raw)
	}
	s.last.Store(out)
	return out
}

// mountGauges tells of the tables of mounts.
func (k *Keeper) mountGauges(r *telemetry.Registry) {
	known := &sizes{}
	for auth, kind := range []string{"logical", "auth"} {
		for local, is := range []string{"false", "true"} {
			r.GaugeFunc("core.mount_table.num_entries", func() float64 {
				return float64(known.take(k.gate.Load()).entries[auth][local])
			}, "type", kind, "local", is)
			r.GaugeFunc("core.mount_table.size", func() float64 { return float64(known.take(k.gate.Load()).bytes[auth][local]) },
				"type", kind, "local", is)
		}
	}
}
