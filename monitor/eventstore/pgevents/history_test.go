//go:build unix

package pgevents

import (
	"fmt"
	"slices"
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
	c.r.State, _ = monitor.Step(c.r.State, monitor.Result{Status: status, Executed: c.at.Unix(), Timestamp: c.at.Unix(),
		Sequence: int64(c.made)}, monitor.Thresholds{}, nil)
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
		if want := c.at.Add(-time.Duration(i) * time.Second); len(runs) == c.made && (!r.At.Equal(want) ||
			i > 0 && r.Status == runs[i-1].Status) {
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

// Each change of status of while PostgreSQL was gone is in the history afterwards, or counted as lost: also that of a
// shard which the first commit afterwards has nothing of, and of one that is another server's since.
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

// Changes within one second are entries of their own, in their order, also when a statement is tried again.
func TestChangesWithinASecond(t *testing.T) {
	s := open(t, Config{DSN: schema(t), Self: "a"}, eventstore.Loaded{Sequence: func(uint16, uint64) {}})
	c := newTurning(1)
	c.at = c.at.Add(time.Second)
	for _, status := range []uint32{2, 0, 2, 1, 2} {
		c.made++
		c.put(t, s, status, 0)
	}
	c.at = c.at.Add(time.Second)
	c.made++
	c.put(t, s, 0, 0)
	idle(t, s)
	runs, err := s.History(t.Context(), *c.r.Key, time.Now(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint32
	for _, r := range runs { // the newest first
		got = append(got, r.Status)
	}
	if !slices.Equal(got, []uint32{0, 2, 1, 2, 0, 2}) {
		t.Errorf("the history tells %v", got)
	}
	// A page may end within the second.
	rest, err := s.History(t.Context(), *c.r.Key, runs[2].At, 100)
	if err != nil || len(rest) != 3 {
		t.Errorf("%d entries behind the third, %v", len(rest), err)
	}
}

// What waits for PostgreSQL is bounded by its bytes too: outputs may be a megabyte each.
func TestWaitingIsBoundedByBytes(t *testing.T) {
	s, begin, end := outage(t, Config{WaitingBytes: 1 << 20})
	c := newTurning(1)
	c.r.Output = make([]byte, 100<<10)
	begin()
	c.turn(t, s, 40)
	if st := s.Stats(); st.Waiting > 11 || st.HistoryLost < 29 {
		t.Fatalf("%+v", st)
	}
	end()
	idle(t, s)
	if n := c.told(t, s); n < 10 {
		t.Errorf("the history has %d", n)
	}
}

// What waits is told by statements of a bounded size, and without a commit; what there is no room for is the oldest,
// and counted to the last.
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
