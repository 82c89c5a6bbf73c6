package shardrouter

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/logevents"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/ingest/ingesttest"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/runs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// cluster is some servers with one log of commands, and calls that a dead server neither makes nor answers.
type cluster struct {
	mu      sync.Mutex // one command after the other
	servers []*server
}

type server struct {
	*Router
	id   string
	in   *ingest.Ingest
	fs   *vfs.Mem
	disk *vfs.Faulty // over fs
	res  *resources.Resources
	// stall is ingest.Config.StallAfter
	stall time.Duration
	dead  atomic.Bool
	done  sync.WaitGroup
	lost  atomic.Bool // answers to its calls do not arrive
}

// Propose implements resources.Group: all members apply a command in the same order.
func (c *cluster) Propose(_ context.Context, cmd []byte) (out any, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		out = s.res.ApplyBatch([][]byte{cmd})[0]
	}
	return out, nil
}

func newCluster(t *testing.T, n int, change ...func(*Config)) *cluster {
	t.Helper()
	return newImpatient(t, n, 0, change...)
}

func newImpatient(t *testing.T, n int, stall time.Duration, change ...func(*Config)) *cluster {
	t.Helper()
	c := &cluster{}
	log := slog.New(slog.DiscardHandler)
	for i := range n {
		c.servers = append(c.servers, &server{id: fmt.Sprint("s", i), fs: vfs.NewMem(), res: resources.New(log),
			stall: stall})
	}
	members := func() (list []Member) {
		for _, s := range c.servers {
			list = append(list, Member{ID: s.id, Name: s.id, Addr: s.id})
		}
		return list
	}
	for _, s := range c.servers {
		s.res.Serve(c)
		leads := func() bool { // the first that lives
			for _, one := range c.servers {
				if !one.dead.Load() {
					return one == s
				}
			}
			return false
		}
		cfg := Config{Self: s.id, Resources: s.res, Leads: leads, Ready: func() bool { return true }, Members: members,
			Log: log, Now: time.Now,
			Call: func(ctx context.Context, addr, method string, req []byte) ([]byte, error) {
				return c.call(ctx, s, addr, method, req)
			}}
		for _, f := range change {
			f(&cfg)
		}
		s.Router = New(cfg)
		s.open(t)
	}
	for _, s := range c.servers { // none speaks before all are there
		s.start(t)
	}
	return c
}

func (c *cluster) call(ctx context.Context, from *server, addr, method string, req []byte) ([]byte, error) {
	for _, to := range c.servers {
		if to.id != addr || to.dead.Load() || from.dead.Load() {
			continue
		}
		reply, err := to.Handlers()[method](ctx, req)
		if from.lost.Load() && method == methodEvents {
			return nil, errkind.Errorf(errkind.Unknown, "the answer got lost")
		}
		if to.dead.Load() {
			break
		}
		return reply, err
	}
	return nil, errkind.Errorf(errkind.Unavailable, "%s is dead", addr)
}

// replicating gives its router what is to reach a replica.
type replicating struct {
	ingest.Discard
	*Router
}

func (r replicating) Replicate(shard uint16, reset bool, until uint64, records []byte) {
	r.Router.Replicate(shard, reset, until, records)
}

func (s *server) open(t *testing.T) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	s.disk = vfs.NewFaulty(s.fs)
	s.in, err = ingest.New(ingest.Config{
		Open: func(l eventstore.Loaded) (eventstore.Store, error) {
			return logevents.Open(logevents.Config{FS: s.disk, Dir: "/e", Log: log}, l)
		},
		Log: log, Now: time.Now, Shared: true, Sink: replicating{Router: s.Router}, StallAfter: s.stall})
	if err != nil {
		t.Fatal(err)
	}
	s.Use(s.in)
}

func (s *server) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.done.Go(func() { _ = s.in.Run(ctx) })
	s.done.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); s.done.Wait() })
}

// kill has a server neither say nor hear anything from now on.
func (s *server) kill() { s.dead.Store(true) }

func (c *cluster) even(t *testing.T, living int) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		for _, s := range c.servers {
			if st := s.Stats(); !s.dead.Load() && (st.Owned < 256/living || st.Owned > 256/living+1 || st.ReplicaBehind > 0) {
				return fmt.Errorf("%s: %+v", s.id, st)
			}
			if t := s.table.Load(); !s.dead.Load() && living > 1 {
				for i, one := range t {
					if !one.Complete {
						return fmt.Errorf("%s: the table does not say that the replica of shard %d has everything: %+v", s.id, i, one)
					}
				}
			}
		}
		return nil
	}, "shards to be dealt evenly")
}

func failing(entity string, at int64) []byte {
	return tagproto.Append(nil, &monitor.Event{Timestamp: at,
		Entity: &monitor.Entity{Meta: monitor.Meta{Name: entity, Namespace: "default"}, Class: monitor.ClassAgent},
		Check: &monitor.Check{Meta: monitor.Meta{Name: "c", Namespace: "default"}, Interval: 10, Status: 1, Executed: at,
			Issued: at}})
}

// TestKill: events that come when the server has died that led, and before anybody knows, are taken once by whoever
// has their entity then.
func TestKill(t *testing.T) {
	var told atomic.Int64
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Forwarded = func(took time.Duration) {
			told.Add(1)
			if took <= 0 || took > itemTime {
				t.Errorf("an event took %s to its owner", took)
			}
		}
	})
	c.even(t, 3)
	const entities, times = 200, 20
	begin := time.Now().Unix() - 100
	send := func(s *server, run int) {
		t.Helper()
		for e := range entities {
			if err := s.Frame(t.Context(), "default", failing(fmt.Sprint("e", e), begin+int64(run))); err != nil {
				t.Fatal(err)
			}
		}
	}
	occurrences := func(s *server, least, most int64) {
		t.Helper()
		for e := range entities {
			polltest.NoError(t, time.Minute, func() error {
				ev, err := s.Get(t.Context(), "default", fmt.Sprint("e", e), "c")
				if err == nil && (ev.Check.Occurrences < least || ev.Check.Occurrences > most) {
					err = fmt.Errorf("e%d has %d occurrences", e, ev.Check.Occurrences)
				}
				if err != nil {
					return err
				}
				list, err := s.Events(t.Context(), "default", fmt.Sprint("e", e))
				if want := []runs.Span{{Status: 1, First: begin, Last: begin + ev.Check.Occurrences - 1,
					Runs: ev.Check.Occurrences}}; err == nil && !reflect.DeepEqual(list[0].Past(), want) {
					err = fmt.Errorf("e%d went through %v, want %v", e, list[0].Past(), want)
				}
				return err
			}, "%d to %d occurrences at %s", least, most, s.id)
		}
	}
	for run := range times {
		send(c.servers[1], run)
		if run == 0 { // what follows may go in brief
			polltest.Until(t, func() bool { return c.servers[1].Stats().Waiting == 0 }, "the first events to arrive")
		}
	}
	occurrences(c.servers[2], times, times)
	if n := told.Load(); n == 0 {
		t.Error("nobody was told how long events take to their owners")
	}
	if st := c.servers[1].Stats(); st.Forwarded == 0 || st.Brief < st.Forwarded/4 ||
		st.Brief > st.Forwarded*(times-1)/times {
		t.Errorf("%d events of %d were forwarded in brief", st.Brief, st.Forwarded)
	}
	c.even(t, 3)
	polltest.Until(t, c.replicated, "the replicas to have everything") // or the kill loses what they lack
	c.servers[0].kill()                                                // it led, too
	send(c.servers[1], times)
	occurrences(c.servers[1], times+1, times+1)
	occurrences(c.servers[2], times+1, times+1)
	c.even(t, 2)
	if list, err := c.servers[2].all(t, ingest.Range{}); err != nil || len(list) != entities {
		t.Errorf("%d events, %v", len(list), err)
	}
	// It comes back with what it had: nothing of that counts, and it gets its part again.
	c.servers[0].dead.Store(false)
	c.even(t, 3)
	occurrences(c.servers[0], times+1, times+1)
}

// replicated reports whether all that was taken is stored, and all that is stored is at the replicas.
func (c *cluster) replicated() bool {
	newest := map[int]uint64{}
	for _, role := range []string{"owner", "replica"} {
		for _, s := range c.servers {
			for _, one := range s.Stored() {
				if one.Role != role {
					continue
				}
				if role == "owner" {
					if !s.in.Settled(uint16(one.Shard)) {
						return false
					}
					newest[one.Shard] = one.Sequence
				} else if one.Sequence < newest[one.Shard] {
					return false
				}
			}
		}
	}
	return true
}

// TestAnswersLost: a call whose answer does not arrive is made again, and its events are taken once.
func TestAnswersLost(t *testing.T) {
	c := newCluster(t, 2)
	c.even(t, 2)
	from, entity := c.servers[0], ""
	for e := 0; entity == ""; e++ {
		if name := fmt.Sprint("e", e); from.owner(ingest.ShardOf("default", name)) == c.servers[1].id {
			entity = name
		}
	}
	from.lost.Store(true)
	for run := range 5 {
		if err := from.Frame(t.Context(), "default", failing(entity, int64(run+1))); err != nil {
			t.Fatal(err)
		}
	}
	polltest.Until(t, func() bool { return c.servers[1].in.Stats().Results > 0 }, "the first call to arrive")
	time.AfterFunc(300*time.Millisecond, func() { from.lost.Store(false) })
	polltest.Until(t, func() bool { return from.Stats().Waiting == 0 }, "the answer")
	ev, err := c.servers[1].Get(t.Context(), "default", entity, "c")
	if err != nil || ev.Check.Occurrences != 5 {
		t.Errorf("%v, %+v", err, ev)
	}
}

// TestOwnerForgets: an event in brief whose owner does not know the rest any more is sent as it came, and those
// behind it wait.
func TestOwnerForgets(t *testing.T) {
	c := newCluster(t, 2)
	c.even(t, 2)
	from, to := c.servers[0], c.servers[1]
	var entities []string
	for e := 0; len(entities) < 40; e++ {
		if name := fmt.Sprint("e", e); from.owner(ingest.ShardOf("default", name)) == to.id {
			entities = append(entities, name)
		}
	}
	send := func(run int64) {
		t.Helper()
		for _, e := range entities {
			if err := from.Frame(t.Context(), "default", failing(e, run)); err != nil {
				t.Fatal(err)
			}
		}
	}
	arrive := func() { polltest.Until(t, func() bool { return from.Stats().Waiting == 0 }, "the events to arrive") }
	send(1)
	arrive()
	for _, e := range entities[:20] {
		if !to.in.Delete("default", e, "") {
			t.Fatalf("%s is not known at its owner", e)
		}
	}
	for run := range int64(5) {
		send(run + 2)
	}
	arrive()
	for i, e := range entities {
		want := int64(6)
		if i < 20 {
			want--
		}
		if ev, err := to.in.Get("default", e, "c"); err != nil || ev.Check.Occurrences != want || ev.Check.Executed != 6 {
			t.Errorf("%s: %v, %+v, want %d occurrences", e, err, ev, want)
		}
	}
}

// TestReplicaFull: where much waits already, who brings an event waits until it is on its way, and all arrive in order.
func TestReplicaFull(t *testing.T) {
	c := newCluster(t, 2, func(cfg *Config) { cfg.QueueBytes = 1 })
	c.even(t, 2)
	from := c.servers[0]
	var senders sync.WaitGroup
	for e := range 50 {
		senders.Go(func() {
			for run := range int64(20) {
				if err := from.Frame(t.Context(), "default", failing(fmt.Sprint("e", e), run+1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	for e := range 50 {
		polltest.NoError(t, time.Minute, func() error {
			ev, err := c.servers[1].Get(t.Context(), "default", fmt.Sprint("e", e), "c")
			if err == nil && (ev.Check.Occurrences != 20 || ev.Check.Executed != 20) {
				err = fmt.Errorf("%+v", ev.Check)
			}
			return err
		}, "all of e%d", e)
	}
}

func FuzzCalls(f *testing.F) {
	log := slog.New(slog.DiscardHandler)
	s := New(Config{Self: "s", Resources: resources.New(log), Log: log, Now: time.Now, Ready: func() bool { return false },
		Members: func() []Member { return nil }})
	cfg := ingesttest.Config(log, nil)
	cfg.Shared = true
	in, err := ingest.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	s.Use(in)
	f.Add([]byte("\x03abc\x00\x01\x01n\x02xy"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, handle := range s.Handlers() {
			_, _ = handle(t.Context(), b)
		}
	})
}
