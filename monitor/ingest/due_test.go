package ingest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor"
)

// timed is a world whose time the test moves.
type timed struct {
	*world
	now *atomic.Pointer[time.Time]
}

func startAt(t *testing.T, fsys vfs.FS) timed {
	t.Helper()
	var now atomic.Pointer[time.Time]
	begin := time.Unix(1_700_000_000, 0)
	now.Store(&begin)
	return timed{start(t, fsys, func(c *Config) { c.Now = func() time.Time { return *now.Load() } }), &now}
}

// pass lets so many seconds pass, one by one.
func (w timed) pass(t *testing.T, seconds int) {
	for range seconds {
		next := w.now.Load().Add(time.Second)
		w.now.Store(&next)
		alarms{w.Ingest}.alarm(t.Context())
	}
}

func (w timed) keepalive(t *testing.T, entity string, timeout uint32, ttl int64) {
	e := event(entity, monitor.KeepaliveCheck, 0, w.now.Load().Unix())
	e.Check.Interval, e.Check.Timeout, e.Check.TTL, e.Check.Handlers = 20, timeout, ttl, nil
	w.send(t, e)
}

func (w timed) is(t *testing.T, entity, check string, status uint32, occurrences int64, output string) {
	t.Helper()
	e, err := w.Get("default", entity, check)
	if err != nil {
		t.Fatal(err)
	}
	if e.Check.Status != status || e.Check.Occurrences != occurrences || !strings.Contains(e.Check.Output, output) {
		t.Fatalf("%s/%s: status %d for the %dth time, %q", entity, check, e.Check.Status, e.Check.Occurrences, e.Check.Output)
	}
}

func TestMissingAgents(t *testing.T) {
	w := startAt(t, vfs.NewMem())
	w.keepalive(t, "e", 120, 300)
	w.pass(t, 119)
	w.is(t, "e", "keepalive", 0, 1, "")
	w.pass(t, 1)
	w.is(t, "e", "keepalive", 1, 1, "from e for 120 seconds")
	w.pass(t, 119)
	w.is(t, "e", "keepalive", 1, 1, "")
	w.pass(t, 1)
	w.is(t, "e", "keepalive", 1, 2, "240 seconds")
	w.pass(t, 60)
	w.is(t, "e", "keepalive", 2, 1, "300 seconds (>= 300)")
	w.keepalive(t, "e", 120, 300)
	w.is(t, "e", "keepalive", 0, 1, "")
	w.pass(t, 60)
	w.keepalive(t, "e", 120, 300)
	w.pass(t, 119)
	w.is(t, "e", "keepalive", 0, 2, "")
	w.keepalive(t, "e", 10, 0) // told anew, and sooner
	w.pass(t, 10)
	w.is(t, "e", "keepalive", 1, 1, "10 seconds")
}

func TestTimeToLive(t *testing.T) {
	w := startAt(t, vfs.NewMem())
	w.keepalive(t, "e", 120, 0)
	e := event("e", "job", 0, w.now.Load().Unix())
	e.Check.TTL = 60
	w.send(t, e)
	w.pass(t, 60)
	w.is(t, "e", "job", 1, 1, "60 seconds ago")
	w.pass(t, 59)
	w.is(t, "e", "job", 1, 1, "")
	w.pass(t, 1) // the agent is missed too from now on, whichever was looked at first
	before, err := w.Get("default", "e", "job")
	if err != nil {
		t.Fatal(err)
	}
	w.pass(t, 300)
	w.is(t, "e", "job", 1, before.Check.Occurrences, "")
	w.keepalive(t, "e", 120, 0)
	e.Check.Executed = w.now.Load().Unix()
	w.send(t, e)
	w.is(t, "e", "job", 0, 1, "")
	e.Check.TTL = 0
	w.send(t, e)
	w.keepalive(t, "e", 3600, 0)
	w.pass(t, 600)
	w.is(t, "e", "job", 0, 2, "")
	w.Delete("default", "e", "")
	w.pass(t, 3600)
	if n := len(w.List("", "")); n != 0 {
		t.Fatalf("%d events of what was deleted", n)
	}
}

// After a restart live agents raise no alarm, and those who died are found, not all at once.
func TestAlarmsAfterARestart(t *testing.T) {
	fsys := vfs.NewMem()
	w := startAt(t, fsys)
	const agents = 40
	for i := range agents {
		w.keepalive(t, fmt.Sprint("e", i), 120, 0)
	}
	w.pass(t, 100)
	w.stop()
	w = startAt(t, fsys)
	alarms := func() (n int) {
		for _, p := range w.List("", "") {
			if p.state.Status != 0 {
				n++
			}
		}
		return n
	}
	w.pass(t, 119)
	if n := alarms(); n != 0 {
		t.Fatalf("%d alarms before anybody could have said a word", n)
	}
	for i := range agents / 2 {
		w.keepalive(t, fmt.Sprint("e", i), 120, 0)
	}
	most := 0
	for range 25 {
		before := alarms()
		w.pass(t, 1)
		most = max(most, alarms()-before)
	}
	if n := alarms(); n != agents/2 || most > agents/4 {
		t.Fatalf("%d alarms, want %d; up to %d in one second", n, agents/2, most)
	}
}

// While agents are refused nobody is missed, and who is silent afterwards is found after what was left of the time.
func TestRefusedAgentsAreNotMissed(t *testing.T) {
	var hears atomic.Bool
	hears.Store(true)
	var now atomic.Pointer[time.Time]
	begin := time.Unix(1_700_000_000, 0)
	now.Store(&begin)
	w := timed{start(t, vfs.NewMem(), func(c *Config) {
		c.Now, hooksOf(c).hears = func() time.Time { return *now.Load() }, hears.Load
	}), &now}
	w.keepalive(t, "e", 120, 0)
	w.pass(t, 100)
	hears.Store(false)
	w.pass(t, 3600)
	w.is(t, "e", "keepalive", 0, 1, "")
	w.keepalive(t, "late", 120, 0) // of a session that was there before
	hears.Store(true)
	w.pass(t, 19)
	w.is(t, "e", "keepalive", 0, 1, "")
	w.pass(t, 2)
	w.is(t, "e", "keepalive", 1, 1, "from e for 1")
	w.is(t, "late", "keepalive", 0, 1, "")
	w.pass(t, 100)
	w.is(t, "late", "keepalive", 1, 1, "")
}

// While a shard is frozen, since another server is to have it, what its agents say waits elsewhere: nobody is missed
// for that when it is not given away after all, and who was silent before is found after what was left of the time.
func TestFrozenShardsMissNobody(t *testing.T) {
	w := startAt(t, vfs.NewMem())
	shard := ShardOf("default", "e")
	w.keepalive(t, "e", 120, 0)
	w.pass(t, 100)
	for range 3 {
		w.Freeze(shard)
		w.pass(t, 50)
		w.Freeze(shard) // the leader asks again
		w.pass(t, 50)
		w.Own(shard)
		w.pass(t, 5)
		w.is(t, "e", "keepalive", 0, 1, "")
	}
	w.pass(t, 4)
	w.is(t, "e", "keepalive", 0, 1, "")
	w.pass(t, 1)
	w.is(t, "e", "keepalive", 1, 1, "from e for 120 seconds")
}

// While results of checks wait for a disk that is full, who sends keepalives is not missed.
func TestKeepalivesDoNotWait(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	var now atomic.Pointer[time.Time]
	begin := time.Unix(1_700_000_000, 0)
	now.Store(&begin)
	w := timed{start(t, faulty, func(c *Config) {
		c.Now, c.PendingBytes = func() time.Time { return *now.Load() }, 4<<10
	}), &now}
	w.keepalive(t, "e", 120, 0)
	w.keepalive(t, "dead", 120, 0)
	w.settled(t)
	faulty.Inject(vfs.Rule{Name: "full", Ops: vfs.OpWrite, Err: syscall.ENOSPC})
	take := func(e *monitor.Event) error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		return w.Frame(ctx, "default", tagproto.Append(nil, e))
	}
	for n := int64(1); take(event("busy", "c", 0, n)) == nil; n++ {
	}
	later := begin.Add(100 * time.Second)
	now.Store(&later)
	if err := take(event("e", monitor.KeepaliveCheck, 0, later.Unix())); !errkind.Is(err, errkind.Overloaded) {
		t.Fatal(err)
	}
	faulty.LiftAll()
	w.settled(t)
	w.pass(t, 30)
	w.is(t, "e", "keepalive", 0, 1, "")
	w.is(t, "dead", "keepalive", 1, 1, "")
	w.pass(t, 90)
	w.is(t, "e", "keepalive", 1, 1, "from e for 120 seconds")
}

func TestDeregistration(t *testing.T) {
	w := startAt(t, vfs.NewMem())
	w.keepalive(t, "passing-by-1", 60, 0)
	w.keepalive(t, "stays", 60, 0)
	w.pass(t, 60)
	w.settled(t)
	w.is(t, "stays", "keepalive", 1, 1, "")
	polltest.Until(t, func() bool { return len(w.List("default", "passing-by-1")) == 0 }, "the entity to go")
	w.mu.Lock()
	n := len(w.published)
	w.mu.Unlock()
	if n != 4 {
		t.Errorf("%d events were published", n)
	}
}
