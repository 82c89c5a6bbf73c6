package monitorruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
	faultrun "corbel.dev/corbel/test/fault"
)

// MonitorOutage is B8 for the monitor plane: three servers keep their events in one PostgreSQL, which goes away under
// results and comes back.
type MonitorOutage struct {
	// Hung stops PostgreSQL in its tracks, with all connections open; else it is killed.
	Hung bool
	For  time.Duration
	// Sleep is how long one server is stopped in the middle of that: others have its shards afterwards, and it has what
	// waits of them. 0 is none.
	Sleep time.Duration
}

// MonitorOutageReport is what happened. Lost are changes of status that the servers say PostgreSQL's history lacks.
type MonitorOutageReport struct {
	Results, Changes, Lost int
	// Recovered is from PostgreSQL's return until it had everything.
	Recovered time.Duration
	GrewBytes int64 // of the servers together, while it was away
}

// outageRun remembers every result that was sent, by subject.
type outageRun struct {
	*faultsRun
	pg   *pgtest.Server
	sent map[string][]*sentRun
}

// RunMonitorOutage runs the scenario.
func RunMonitorOutage(ctx context.Context, l *faultrun.Lab, cfg MonitorOutage, seed uint64) (*MonitorOutageReport,
	error) {
	report := &MonitorOutageReport{}
	pg, err := pgtest.New()
	if err != nil {
		return report, err
	}
	defer pg.Remove()
	m, err := openMonitor(ctx, l, harness.Config{Servers: 3,
		HCL: []string{fmt.Sprintf("monitor {\n  store = \"postgresql\"\n  dsn = %q\n}", pg.URL(""))}}, 6, 4, scaled, seed)
	if err != nil {
		return report, err
	}
	defer m.close()
	r := &outageRun{&faultsRun{monitorRun: m, beats: scaled, rng: rand.New(rand.NewPCG(seed, 0x09))}, pg,
		map[string][]*sentRun{}}
	if err := errors.Join(r.outage(ctx, cfg, report), r.Damage()); err != nil {
		return report, fmt.Errorf("seed %d: %w\n%s", seed, err, r.Logs())
	}
	return report, nil
}

// round has agents send results, all of which must count whatever PostgreSQL does.
func (r *outageRun) round(ctx context.Context) error {
	return r.under(ctx, func() error { return nil }, func() error {
		for _, a := range r.sensors {
			for _, s := range a.subjects {
				r.sent[s.name] = append(r.sent[s.name], s.sent...)
			}
		}
		return nil
	})
}

func (r *outageRun) outage(ctx context.Context, cfg MonitorOutage, report *MonitorOutageReport) error {
	if err := errors.Join(r.round(ctx), r.durable(ctx)); err != nil {
		return err
	}
	rss := func() (sum int64) {
		for _, s := range r.Servers {
			sum += s.RSS()
		}
		return sum
	}
	base, began := rss(), time.Now()
	if err := r.away(cfg.Hung); err != nil {
		return err
	}
	for rounds := 0; rounds < 2 || time.Since(began) < cfg.For; rounds++ {
		if err := r.round(ctx); err != nil {
			return fmt.Errorf("while PostgreSQL is away: %w", err)
		}
		if cfg.Sleep > 0 && time.Since(began) > cfg.For/2 {
			if err := r.asleep(ctx, cfg.Sleep); err != nil {
				return fmt.Errorf("while PostgreSQL is away and a server sleeps: %w", err)
			}
			cfg.Sleep = 0
		}
	}
	if err := r.told(ctx); err != nil {
		return err
	}
	if report.GrewBytes = rss() - base; report.GrewBytes > 256<<20*int64(len(r.Servers)) {
		return fmt.Errorf("the servers grew by %d bytes while PostgreSQL was away", report.GrewBytes)
	}
	back := time.Now()
	if err := r.back(cfg.Hung); err != nil {
		return err
	}
	if err := r.durable(ctx); err != nil {
		return err
	}
	report.Recovered = time.Since(back)
	return errors.Join(r.filled(ctx, report), r.afterRestart(ctx))
}

// asleep stops a server for a while in which nothing is sent, and looks that others took its shards over.
func (r *outageRun) asleep(ctx context.Context, d time.Duration) error {
	before, err := r.sum(ctx, "sensu_go_shards_taken_over")
	if err != nil {
		return err
	}
	victim := r.Servers[r.rng.IntN(len(r.Servers))]
	if err := victim.Freeze(); err != nil {
		return err
	}
	if err := errors.Join(spawn.Sleep(ctx, d), victim.Thaw(), r.whole(ctx)); err != nil {
		return err
	}
	after, err := r.sum(ctx, "sensu_go_shards_taken_over")
	if err == nil && after == before {
		err = errors.New("no shard moved")
	}
	return err
}

func (r *outageRun) away(hung bool) error {
	if hung {
		return r.pg.Freeze()
	}
	r.pg.Stop(syscall.SIGKILL)
	return nil
}

func (r *outageRun) back(hung bool) error {
	if hung {
		return r.pg.Thaw()
	}
	return r.pg.Start()
}

// durable waits until PostgreSQL has everything.
func (r *outageRun) durable(ctx context.Context) error {
	return spawn.Until(ctx, 2*time.Minute, "PostgreSQL to have everything", func() error {
		healthy, err := r.sum(ctx, "sensu_go_postgres_healthy")
		if err == nil && healthy != float64(len(r.Servers)) {
			err = fmt.Errorf("%v servers reach it", healthy)
		}
		for _, name := range []string{"sensu_go_postgres_behind", "sensu_go_postgres_history_waiting"} {
			n, failed := r.sum(ctx, name)
			if failed == nil && n > 0 {
				failed = fmt.Errorf("%s is %v", name, n)
			}
			err = errors.Join(err, failed)
		}
		return err
	})
}

// told looks that the servers say what is wrong: in their metrics and in /health.
func (r *outageRun) told(ctx context.Context) error {
	return spawn.Until(ctx, 30*time.Second, "the servers to say that PostgreSQL is away", func() error {
		healthy, err := r.sum(ctx, "sensu_go_postgres_healthy")
		if err != nil || healthy > 0 {
			return errors.Join(err, fmt.Errorf("%v servers take it for healthy", healthy))
		}
		for _, s := range r.Servers {
			body, err := r.get(ctx, s, "/health")
			if err != nil {
				return err
			}
			var health struct{ PostgresHealth []struct{ Healthy bool } }
			if err := json.Unmarshal(body, &health); err != nil {
				return err
			}
			if len(health.PostgresHealth) != 1 || health.PostgresHealth[0].Healthy {
				return fmt.Errorf("%s: /health says %s", s.Name, body)
			}
		}
		return nil
	})
}

// changes returns the runs that the history must tell of, or count. A run whose session ended before it was proved to
// be read may have got lost, and with it what the next one changed.
func changes(sent []*sentRun) (out []*sentRun) {
	for i := 1; i < len(sent); i++ {
		if before, run := sent[i-1], sent[i]; run.status != before.status && !run.taken.IsZero() && !before.taken.IsZero() {
			out = append(out, run)
		}
	}
	return out
}

// filled compares the history in PostgreSQL with what was sent: each change of status is there, or counted as lost.
func (r *outageRun) filled(ctx context.Context, report *MonitorOutageReport) error {
	lost, err := r.sum(ctx, "sensu_go_postgres_history_lost")
	if err != nil {
		return err
	}
	missing := 0
	for name, sent := range r.sent {
		report.Results += len(sent)
		var got struct{ Changes []struct{ At, Status int64 } }
		path := "/api/corbel/v1/namespaces/default/events/changes?check=disk&limit=1000&entity=" + name
		body, _, err := r.clients[r.Servers[0]].Do(ctx, "GET", path, nil, nil)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &got); err != nil {
			return err
		}
		at := map[int64]int64{}
		for _, c := range got.Changes {
			at[c.At] = c.Status
		}
		for _, run := range changes(sent) {
			report.Changes++
			if status, ok := at[run.number]; !ok || status != int64(run.status) {
				missing++
			}
		}
	}
	report.Lost = int(lost)
	if missing > report.Lost {
		return fmt.Errorf("of %d changes of status %d are not in the history, and %d are counted as lost", report.Changes,
			missing, report.Lost)
	}
	return nil
}

// afterRestart looks that all servers, started anew, have from PostgreSQL what they had.
func (r *outageRun) afterRestart(ctx context.Context) error {
	before, err := r.events(ctx, r.Servers[0])
	if err != nil {
		return err
	}
	for _, s := range r.Servers {
		if err := s.Stop(); err != nil {
			return err
		}
	}
	if err := errors.Join(r.Start(), r.settled(ctx, 2*time.Minute)); err != nil {
		return err
	}
	for _, s := range r.Servers {
		all, err := r.events(ctx, s)
		if err != nil {
			return err
		}
		for key, old := range before {
			if now := all[key]; now == nil || old.Check.Name != monitor.KeepaliveCheck && !reflect.DeepEqual(now.Check,
				old.Check) {
				return fmt.Errorf("%s: %s was %+v, and is %+v after a restart", s.Name, key, old.Check, now)
			}
		}
	}
	return r.whole(ctx)
}
