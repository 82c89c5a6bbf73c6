//go:build unix

package pgevents

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
)

// turning is a check on an entity whose status is another one with each result.
type turning struct {
	shard  uint16
	r      eventstore.Result
	at     time.Time
	status uint32
	made   int
}

func newTurning(shard uint16) *turning {
	return &turning{shard: shard, at: time.Now().Add(-24 * time.Hour).Truncate(time.Second),
		r: eventstore.Result{Key: &eventstore.Key{Namespace: "default", Entity: fmt.Sprint("e", shard), Check: "disk"}}}
}

// turn commits so many changes of status, each by itself.
func (c *turning) turn(t testing.TB, s *Store, changes int) {
	t.Helper()
	for range changes {
		c.at, c.status, c.made = c.at.Add(time.Second), 2-c.status, c.made+1
		c.put(t, s, c.status, 0)
	}
}

func (c *turning) put(t testing.TB, s *Store, status uint32, what eventstore.News) {
	t.Helper()
	if c.made == 1 {
		what = eventstore.Whole
	}
	c.r.State, _ = monitor.Step(c.r.State, monitor.Result{Status: status, Executed: c.at.Unix(), Timestamp: c.at.Unix(), Sequence: int64(c.made)}, monitor.Thresholds{}, nil)
	c.r.Past.Add(status, c.at.Unix())
	b := s.NewBatch(c.shard)
	b.Put(eventstore.NumberOf(c.shard, 0), &c.r, what)
	if err := s.Commit(t.Context(), []eventstore.Batch{b}, []uint64{uint64(c.at.Unix())}); err != nil {
		t.Fatal(err)
	}
}

// told returns how many of the changes the history has.
func (c *turning) told(t testing.TB, s *Store) int {
	t.Helper()
	runs, err := s.History(t.Context(), *c.r.Key, time.Now(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range runs { // the newest first, each other one failing
		if want := c.at.Add(-time.Duration(i) * time.Second); len(runs) == c.made && (!r.At.Equal(want) || i > 0 && r.Status == runs[i-1].Status) {
			t.Fatalf("change %d: %+v, want %s", i, r, want)
		}
	}
	return len(runs)
}

// outage is a store, and a PostgreSQL of its own that is killed and comes back.
func outage(t *testing.T, cfg Config) (s *Store, begin, end func()) {
	if _, err := pgtest.Bin(); err != nil {
		schema(t)
	}
	server, err := pgtest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Remove)
	cfg.DSN, cfg.Self, cfg.Timeout, cfg.Patience = server.URL(""), "a", 3*time.Second, 100*time.Millisecond
	s = open(t, cfg, eventstore.Loaded{Sequence: func(uint16, uint64) {}})
	begin = func() {
		server.Stop(syscall.SIGKILL)
		c := newTurning(200) // has the store notice
		polltest.Until(t, func() bool { c.turn(t, s, 1); return s.Healthy() != nil }, "the store notices")
	}
	end = func() {
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, func() bool { return s.Healthy() == nil }, "PostgreSQL is back")
	}
	return s, begin, end
}

// idle waits until nothing waits, with no commit that has it written.
func idle(t testing.TB, s *Store) {
	t.Helper()
	polltest.Until(t, func() bool { return s.Stats().Waiting == 0 }, "the history is told")
}

// Each change of status of while PostgreSQL was gone is in the history afterwards, or counted as lost: also that of a shard which the first commit
// afterwards has nothing of, and of one that is another server's since.
func TestHistoryAfterOutage(t *testing.T) {
	const away = 30
	var moved atomic.Bool
	s, begin, end := outage(t, Config{Owner: func(shard uint16) (uint64, bool) { return 1, shard != 2 || !moved.Load() }})
	all := []*turning{newTurning(1), newTurning(2), newTurning(3)}
	for _, c := range all {
		c.turn(t, s, 3)
	}
	begin()
	for _, c := range all {
		c.turn(t, s, away)
	}
	moved.Store(true)
	end()
	all[0].turn(t, s, 1) // before Refresh was asked for what is behind
	idle(t, s)
	for _, c := range all {
		if n := c.told(t, s); n != c.made {
			t.Errorf("shard %d: the history has %d of %d changes of status", c.shard, n, c.made)
		}
	}
	if st := s.Stats(); st.HistoryLost != 0 {
		t.Fatalf("%+v", st)
	}
}

// What waits is told by statements of a bounded size, and without a commit; what there is no room for is the oldest, and counted to the last.
func TestLongHistoryAfterOutage(t *testing.T) {
	const away, room = 900, 700
	s, begin, end := outage(t, Config{Waiting: room})
	c := newTurning(1)
	c.r.Output = make([]byte, runsMostBytes/300) // three statements
	begin()
	c.turn(t, s, away)
	if st := s.Stats(); st.Waiting != room || st.HistoryLost < away-room {
		t.Fatalf("%+v", st)
	}
	before := s.Stats()
	end()
	idle(t, s)
	if n := c.told(t, s); n != room {
		t.Fatalf("the history has %d of %d changes of status; %+v", n, away, s.Stats())
	}
	if st := s.Stats(); st.HistoryLost != before.HistoryLost || st.Statements-before.Statements < 3 {
		t.Fatalf("%+v, before %+v", st, before)
	}
}
