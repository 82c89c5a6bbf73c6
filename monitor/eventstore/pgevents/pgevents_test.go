//go:build unix

package pgevents

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventstoretest"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
)

func open(t testing.TB, cfg Config, l eventstore.Loaded) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	eventstoretest.Run(t, func(t *testing.T) eventstoretest.Open {
		dsn := schema(t)
		return func(t testing.TB, l eventstore.Loaded) eventstore.Store {
			return open(t, Config{DSN: dsn, Self: "a"}, l)
		}
	})
}

// round commits some changes, and what the store asks for.
func round(t testing.TB, s *Store, f *eventstoretest.Fleet, changes int) {
	t.Helper()
	b := s.NewBatch(1)
	for range changes {
		f.Change(b, 1)
	}
	results, entities := s.Refresh(100)
	f.Sequences[1] += uint64(f.Refresh(b, 1, results, entities))
	if b.Len() == 0 {
		return
	}
	if err := s.Commit(t.Context(), []eventstore.Batch{b}, []uint64{f.Sequences[1]}); err != nil {
		t.Fatal(err)
	}
}

// settle goes on until everything is durable.
func settle(t testing.TB, s *Store, f *eventstoretest.Fleet) {
	t.Helper()
	polltest.Until(t, func() bool {
		round(t, s, f, 1)
		_, behind := s.Behind(1)
		return !behind && s.Healthy() == nil
	}, "everything is written")
}

// equal opens the store anew and compares.
func equal(t testing.TB, cfg Config, f *eventstoretest.Fleet) {
	t.Helper()
	got, l := eventstoretest.Loaded()
	s := open(t, cfg, l)
	f.Equal(t, got)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// While the server is gone, or frozen, commits go on without waiting; once it is back it has everything as it is.
func TestServerGone(t *testing.T) {
	if _, err := pgtest.Bin(); err != nil {
		schema(t)
	}
	server, err := pgtest.New()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Remove()
	cfg := Config{DSN: server.URL(""), Self: "a", Timeout: 3 * time.Second, Patience: 100 * time.Millisecond}
	for name, fault := range map[string]struct{ begin, end func() error }{
		"killed": {func() error { server.Stop(syscall.SIGKILL); return nil }, server.Start},
		"frozen": {server.Freeze, server.Thaw},
	} {
		t.Run(name, func(t *testing.T) {
			f, l := eventstoretest.Loaded()
			s := open(t, cfg, l)
			for range 30 {
				round(t, s, f, 5)
			}
			if err := fault.begin(); err != nil {
				t.Fatal(err)
			}
			polltest.Until(t, func() bool { round(t, s, f, 5); return s.Healthy() != nil }, "the store notices")
			for range 500 {
				round(t, s, f, 5)
			}
			durable, behind := s.Behind(1)
			if !behind || durable >= f.Sequences[1] {
				t.Fatalf("durable %d (%v) of %d", durable, behind, f.Sequences[1])
			}
			if st := s.Stats(); st.Deferred == 0 || st.Dirty == 0 || st.Dirty > 40 || st.Waiting == 0 {
				t.Fatalf("%+v", st)
			}
			if err := fault.end(); err != nil {
				t.Fatal(err)
			}
			settle(t, s, f)
			if st := s.Stats(); st.HistoryLost != 0 || st.Waiting != 0 {
				t.Fatalf("%+v", st)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			equal(t, cfg, f)
		})
	}
}

// What the history has no room for is counted, and the state is written all the same.
func TestHistoryLossIsCounted(t *testing.T) {
	cfg := Config{DSN: schema(t), Self: "a", Waiting: 10}
	f, l := eventstoretest.Loaded()
	s := open(t, cfg, l)
	round(t, s, f, 20)
	s.mu.Lock()
	s.down = errkind.New(errkind.Unavailable, "as if")
	s.mu.Unlock()
	for range 50 {
		b := s.NewBatch(1)
		for range 5 {
			f.Change(b, 1)
		}
		s.mu.Lock()
		j := s.gather([]eventstore.Batch{b}, []uint64{f.Sequences[1]})
		s.put(j)
		s.mu.Unlock()
	}
	if st := s.Stats(); st.HistoryLost == 0 || st.Waiting != 10 {
		t.Fatalf("%+v", st)
	}
	settle(t, s, f)
	equal(t, cfg, f)
}

// A shard's former owner changes nothing; the new one writes what it has, and removes what it has not.
func TestFencing(t *testing.T) {
	dsn := schema(t)
	var owner atomic.Int32 // 0 is a, 1 is b; a does not learn of it
	f, l := eventstoretest.Loaded()
	a := open(t, Config{DSN: dsn, Self: "a"}, l)
	for range 20 {
		round(t, a, f, 5)
	}
	_, l = eventstoretest.Loaded()
	b := open(t, Config{DSN: dsn, Self: "b", Owner: func(uint16) (uint64, bool) { return 2, owner.Load() == 1 }}, l)
	g := eventstoretest.NewFleet(3) // what b, as a replica, has: not what a has
	for range 20 {
		round(t, b, g, 5)
	}
	// b has written nothing so far, and knows its numbers from what it followed and from what it loaded.
	got, l := eventstoretest.Loaded()
	if err := open(t, Config{DSN: dsn, Self: "c", Owner: func(uint16) (uint64, bool) { return 0, false }},
		l).Close(); err != nil {
		t.Fatal(err)
	}
	f.Equal(t, got)
	owner.Store(1)
	for n := range f.Results { // what b forgot when it began to follow
		if g.Results[n] == nil {
			remove(t, b, g, n, false)
		}
	}
	for n := range f.Entities {
		if g.Entities[n] == nil {
			remove(t, b, g, n, true)
		}
	}
	settle(t, b, g)
	for range 5 {
		round(t, a, f, 5)
	}
	if st := a.Stats(); st.Fenced == 0 {
		t.Fatalf("%+v", st)
	}
	settle(t, b, g)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	equal(t, Config{DSN: dsn, Self: "c", Owner: func(uint16) (uint64, bool) { return 0, false }}, g)
}

func remove(t testing.TB, s *Store, f *eventstoretest.Fleet, n eventstore.Number, entity bool) {
	b := s.NewBatch(1)
	if entity {
		b.DeleteEntity(n)
	} else {
		b.Delete(n)
	}
	f.Sequences[1]++
	if err := s.Commit(t.Context(), []eventstore.Batch{b}, []uint64{f.Sequences[1]}); err != nil {
		t.Fatal(err)
	}
}

// A statement of a turn that is over changes nothing, however late it comes.
func TestLateStatement(t *testing.T) {
	cfg := Config{DSN: schema(t), Self: "a"}
	f, l := eventstoretest.Loaded()
	s := open(t, cfg, l)
	round(t, s, f, 20)
	late := s.NewBatch(1)
	f.Change(late, 1)
	s.mu.Lock()
	j := s.gather([]eventstore.Batch{late}, []uint64{f.Sequences[1]})
	s.put(j)
	s.turn = 0 // its outcome is unknown
	s.mu.Unlock()
	settle(t, s, f)
	w := &statement{shards: []int16{1}, epochs: []int64{1}, sequences: []int64{1}}
	for i := range j.batches[0].changes {
		w.add(1, &j.batches[0].changes[i])
	}
	var mine []int16
	var parts int64
	if err := s.pool.QueryRow(t.Context(), writeSQL, w.args(1)...).Scan(&mine, &parts); err != nil {
		t.Fatal(err)
	}
	if len(mine) != 0 || parts != 0 {
		t.Fatal(mine, parts)
	}
	equal(t, cfg, f)
}

// Servers that start at once make the tables once; tables of a later version are refused.
func TestMigrations(t *testing.T) {
	dsn := schema(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			_, l := eventstoretest.Loaded()
			s, err := Open(context.Background(), Config{DSN: dsn, Self: fmt.Sprint(i)}, l)
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Close()
		})
	}
	all.Wait()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `UPDATE corbel_event_schema SET version = 99`); err != nil {
		t.Fatal(err)
	}
	_, l := eventstoretest.Loaded()
	if _, err := Open(t.Context(), Config{DSN: dsn, Self: "a"}, l); errkind.Of(err) != errkind.Invalid {
		t.Fatal(err)
	}
}

// put commits one result.
func put(t testing.TB, s *Store, r *eventstore.Result, status uint32, at time.Time, what eventstore.News) {
	t.Helper()
	r.State, _ = monitor.Step(r.State, monitor.Result{Status: status, Executed: at.Unix(), Timestamp: at.Unix()},
		monitor.Thresholds{}, nil)
	r.Past.Add(status, at.Unix())
	b := s.NewBatch(1)
	b.Put(eventstore.NumberOf(1, 0), r, what)
	if err := s.Commit(t.Context(), []eventstore.Batch{b}, []uint64{uint64(at.Unix())}); err != nil {
		t.Fatal(err)
	}
}

// The history has an entry for each change of status, for as long as it is kept.
func TestHistory(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	cfg := Config{DSN: schema(t), Self: "a", Retention: 3 * day, Now: func() time.Time { return now }}
	_, l := eventstoretest.Loaded()
	s := open(t, cfg, l)
	r := &eventstore.Result{Key: &eventstore.Key{Namespace: "default", Entity: "web\x00\xff", Check: "http"},
		Output: []byte("out\x00put"), ProcessedBy: "\xff"}
	put(t, s, r, 0, now, eventstore.Whole)
	for i := range 30 { // nothing new
		put(t, s, r, 0, now.Add(time.Duration(i+1)*time.Second), 0)
	}
	put(t, s, r, 2, now.Add(time.Minute), eventstore.NewOutput)
	put(t, s, r, 2, now.Add(time.Minute), eventstore.Whole) // as after Refresh
	now = now.Add(day)
	put(t, s, r, 0, now, 0)
	put(t, s, r, 2, now.Add(-100*365*day), 0) // a clock that is wrong
	runs, err := s.History(t.Context(), *r.Key, now.Add(time.Hour), 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 4 || runs[3].Status != 0 || runs[2].Status != 2 || runs[2].State != "failing" ||
		string(runs[2].Output) != "out\x00put" {
		t.Fatalf("%+v", runs)
	}
	if runs, err = s.History(t.Context(), *r.Key, now, 1); err != nil || len(runs) != 1 || runs[0].Status != 2 {
		t.Fatal(runs, err)
	}
	now = now.Add(3*day + time.Hour)
	if err := s.retain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if runs, err = s.History(t.Context(), *r.Key, now, 10); err != nil || len(runs) != 2 {
		t.Fatal(runs, err)
	}
	put(t, s, r, 0, now, 0)
	if err := s.Healthy(); err != nil {
		t.Fatal(err)
	}
}

// Updates of states stay in their page: nothing is left for a vacuum of the index.
func TestUpdatesAreHot(t *testing.T) {
	cfg := Config{DSN: schema(t), Self: "a"}
	_, l := eventstoretest.Loaded()
	s := open(t, cfg, l)
	r := &eventstore.Result{Key: &eventstore.Key{Namespace: "default", Entity: "web", Check: "http"}}
	for i := range 300 {
		b := s.NewBatch(1)
		r.State, _ = monitor.Step(r.State, monitor.Result{Executed: int64(1_700_000_000 + i)}, monitor.Thresholds{}, nil)
		for n := range uint32(20) {
			what := eventstore.News(0)
			if i == 0 {
				what = eventstore.Whole
			}
			b.Put(eventstore.NumberOf(1, n), r, what)
		}
		if err := s.Commit(t.Context(), []eventstore.Batch{b}, []uint64{uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // its statistics are sent
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), cfg.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	polltest.Until(t, func() bool {
		var updates, hot int64
		if err := conn.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = `+
			`'corbel_event_states'::regclass`).Scan(&updates, &hot); err != nil {
			t.Fatal(err)
		}
		if updates >= 299*20 && hot*10 < updates*9 {
			t.Fatalf("%d of %d updates stayed in their page", hot, updates)
		}
		return updates >= 299*20
	}, "statistics")
}

func TestConfig(t *testing.T) {
	for _, dsn := range []string{"postgres://u:hidden@h:port/db", "host"} {
		err := CheckDSN(dsn)
		if err == nil || errkind.Of(err) != errkind.Invalid {
			t.Fatalf("%q: %v", dsn, err)
		}
	}
	if err := CheckDSN("postgres://u:p@h:5432/db?sslmode=require"); err != nil {
		t.Fatal(err)
	}
}

// One commit of unchanged results, as under load.
func BenchmarkCommit(b *testing.B) {
	const keys = 2000
	s := open(b, Config{DSN: schema(b), Self: "a"},
		eventstore.Loaded{Result: func(eventstore.Number, *eventstore.Result) {},
			Entity: func(eventstore.Number, *eventstore.Entity) {}, Sequence: func(uint16, uint64) {}})
	r := &eventstore.Result{Key: &eventstore.Key{Namespace: "default", Entity: "web", Check: "http"},
		Stable: make([]byte, 600), Output: make([]byte, 80)}
	batch := s.NewBatch(1)
	what := eventstore.Whole
	for i := 0; b.Loop(); i++ {
		r.State, _ = monitor.Step(r.State, monitor.Result{Executed: int64(1_700_000_000 + i)}, monitor.Thresholds{}, nil)
		for n := range uint32(keys) {
			batch.Put(eventstore.NumberOf(1, n), r, what)
		}
		if err := s.Commit(b.Context(), []eventstore.Batch{batch}, []uint64{uint64(i + 1)}); err != nil {
			b.Fatal(err)
		}
		batch.Reset()
		what = 0
	}
	b.ReportMetric(float64(b.N*keys)/b.Elapsed().Seconds(), "results/s")
}
