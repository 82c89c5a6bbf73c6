package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/records"
	"corbel.dev/corbel/secrets/storage/storagetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// peer is one server: a Store over a Raft group on a real disk and a real network.
type peer struct {
	*Store
	t        testing.TB
	g        *group.Group
	id, addr string
	dir      string
	boot     []group.Server
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

func (m *peer) start() {
	m.t.Helper()
	l, err := net.Listen("tcp", m.addr)
	if err != nil {
		m.t.Fatal(err)
	}
	m.Store = New(nil)
	m.g, err = group.Open(group.Config{Name: "secrets", Dir: m.dir, LocalID: m.id, LocalAddr: m.addr, Listener: l,
		Machine:   m.Store,
		Bootstrap: m.boot, Compaction: group.Compaction{TrailingLogs: 1}, SegmentBytes: 4 << 20,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.Serve(m.g)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.wg.Go(func() { _ = m.g.Run(ctx) })
}

func (m *peer) stop() {
	m.cancel()
	m.wg.Wait()
}

// Close ends the store and the server below it.
func (m *peer) Close() error {
	err := m.Store.Close()
	m.stop()
	return err
}

func several(t testing.TB, n int) []*peer {
	t.Helper()
	ports, err := testport.Free(n)
	if err != nil {
		t.Fatal(err)
	}
	var members []*peer
	var boot []group.Server
	for i, port := range ports {
		m := &peer{t: t, id: fmt.Sprint("s", i), addr: fmt.Sprint("127.0.0.1:", port), dir: t.TempDir()}
		boot = append(boot, group.Server{ID: m.id, Address: m.addr, Voter: true})
		members = append(members, m)
	}
	for _, m := range members {
		m.boot = boot
		m.start()
	}
	t.Cleanup(func() {
		for _, m := range members {
			m.stop()
		}
	})
	return members
}

func leaderOf(t testing.TB, members []*peer) *peer {
	t.Helper()
	var found *peer
	polltest.Until(t, func() bool {
		for _, m := range members {
			if m.g.LeaseHeld() {
				found = m
			}
		}
		return found != nil
	}, "a leader")
	return found
}

// insist commits at whoever leads until it is acknowledged; the commit may come twice.
func insist(t testing.TB, members []*peer, epoch storage.Epoch, ops ...storage.Op) {
	t.Helper()
	polltest.NoError(t, polltest.Deadline, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return leaderOf(t, members).Commit(ctx, epoch, ops)
	}, "an acknowledged commit")
}

func same(t *testing.T, members []*peer, want records.State) {
	t.Helper()
	for _, m := range members {
		polltest.Until(t, func() bool {
			have := m.state.Load()
			return have.Epoch == want.Epoch && reflect.DeepEqual(have.Scan("", "", 0), want.Scan("", "", 0))
		}, "%s to hold the leader's state", m.id)
	}
}

func TestConformance(t *testing.T) {
	var last []*peer
	storagetest.Run(t, storagetest.Kit{
		Open: func(t *testing.T) storage.Backend {
			last = several(t, 1)
			return leaderOf(t, last)
		},
		Reopen: func(t *testing.T) storage.Backend {
			last[0].start()
			return leaderOf(t, last)
		},
	})
}

func TestConformanceOfThree(t *testing.T) {
	var last storage.Backend
	storagetest.Run(t, storagetest.Kit{Steps: 100,
		Open: func(t *testing.T) storage.Backend { last = anyOf(several(t, 3)); return last },
		// The log puts the commits of both in one order, wherever they come from.
		Second: func(*testing.T) storage.Backend { return last },
	})
}

// cluster is a Backend that finds its leader, so that an election on a slow machine is no failure.
type cluster struct{ members []*peer }

func anyOf(members []*peer) *cluster { return &cluster{members: members} }

// do calls at each server until one answers for good. What has an unknown outcome is done again: the kit's commits
// may come twice.
func (c *cluster) do(ctx context.Context, call func(storage.Backend) error) error {
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for {
		for _, m := range c.members {
			err := call(m.Store)
			if err == nil || errors.Is(err, storage.ErrFenced) || errors.Is(err, errClosed) {
				return err
			}
			if kind := errkind.Of(err); kind != errkind.NotLeader && kind != errkind.Unavailable && kind != errkind.Unknown {
				return err
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return errkind.E(errkind.Unavailable, "no server answers", ctx.Err())
		}
	}
}

func (c *cluster) Get(ctx context.Context, key string) (value []byte, ok bool, err error) {
	err = c.do(ctx, func(b storage.Backend) (err error) { value, ok, err = b.Get(ctx, key); return err })
	return value, ok, err
}

func (c *cluster) List(ctx context.Context, prefix, after string, limit int) (names []string, err error) {
	err = c.do(ctx, func(b storage.Backend) (err error) { names, err = b.List(ctx, prefix, after, limit); return err })
	return names, err
}

func (c *cluster) Scan(ctx context.Context, from, to string, limit int) (list []storage.Record, err error) {
	err = c.do(ctx, func(b storage.Backend) (err error) { list, err = b.Scan(ctx, from, to, limit); return err })
	return list, err
}

func (c *cluster) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	return c.do(ctx, func(b storage.Backend) error { return b.Commit(ctx, epoch, ops) })
}

func (c *cluster) Fence(ctx context.Context, epoch storage.Epoch) error {
	return c.do(ctx, func(b storage.Backend) error { return b.Fence(ctx, epoch) })
}

func (c *cluster) Info() storage.Info { return c.members[0].Info() }

func (c *cluster) Close() error {
	for _, m := range c.members {
		_ = m.Store.Close()
	}
	return nil
}

// TestClusterLife: followers point to the leader, a fence counts whoever leads, a member that was away gets a
// snapshot, and what was acknowledged outlives the stop of everybody.
func TestClusterLife(t *testing.T) {
	members := several(t, 3)
	insist(t, members, 0, storage.Put("a/1", []byte("one")), storage.Put("a/2", []byte("two")))
	lead := leaderOf(t, members)
	var follower *peer
	for _, m := range members {
		if m != lead {
			follower = m
		}
	}
	polltest.Until(t, func() bool {
		err := follower.Commit(t.Context(), 0, []storage.Op{storage.Put("b", nil)})
		var hint *Elsewhere
		return errkind.Is(err, errkind.NotLeader) && errors.As(err, &hint) && hint.Address != "" &&
			hint.Address != follower.addr
	}, "a follower to say who leads")
	if _, _, err := follower.Get(t.Context(), "a/1"); !errkind.Is(err, errkind.NotLeader) {
		t.Errorf("a read on a follower: %v", err)
	}

	polltest.NoError(t, polltest.Deadline, func() error { return leaderOf(t, members).Fence(t.Context(), 4) }, "a fence")
	follower.stop()
	others := []*peer{}
	for _, m := range members {
		if m != follower {
			others = append(others, m)
		}
	}
	for i := range 40 {
		insist(t, others, 4, storage.Put(fmt.Sprint("away/", i), []byte("y")), storage.Delete("a/1"))
	}
	lead = leaderOf(t, others)
	if err := lead.g.SnapshotNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	insist(t, others, 4, storage.Put("after", []byte("z")))
	follower.start()
	same(t, members, *leaderOf(t, members).state.Load())

	before := *leaderOf(t, members).state.Load()
	for _, m := range members {
		m.stop()
	}
	for _, m := range members {
		m.start()
	}
	same(t, members, before)
	polltest.Until(t, func() bool { // a former writer, whichever server it speaks through
		return errors.Is(leaderOf(t, members).Commit(t.Context(), 3, []storage.Op{storage.Delete("after")}),
			storage.ErrFenced)
	}, "the fence to have outlived everybody")
	same(t, members, before)
}

// TestSaveRestore: a saved state, brought into a fresh group, is the same state.
func TestSaveRestore(t *testing.T) {
	members := several(t, 1)
	insist(t, members, 0, storage.Put("k/1", []byte("one")), storage.Put("k/2", nil))
	var saved bytes.Buffer
	if err := leaderOf(t, members).g.Save(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	fresh := several(t, 1)
	insist(t, fresh, 0, storage.Put("gone", nil))
	polltest.NoError(t, polltest.Deadline, func() error {
		return leaderOf(t, fresh).g.Restore(t.Context(), bytes.NewReader(saved.Bytes()))
	}, "the restore")
	same(t, fresh, *members[0].state.Load())
}

// TestMachine: what cannot be read changes nothing and stops nobody; late commands of a former writer neither;
// a damaged snapshot leaves the state as it was.
func TestMachine(t *testing.T) {
	s := New(nil)
	commit := func(epoch storage.Epoch, v string) []byte {
		return records.Batch{Epoch: epoch, Ops: []storage.Op{storage.Put("k", []byte(v))}}.Append(nil)
	}
	out := s.ApplyBatch([][]byte{commit(0, "first"), {99}, records.Batch{Epoch: 2, Fence: true}.Append(nil),
		commit(0, "late"), commit(2, "new")})
	for i, want := range []errkind.Kind{0, errkind.Corrupt, 0, errkind.NotLeader, 0} {
		if err, _ := out[i].(error); (err != nil) != (want != 0) || (err != nil && errkind.Of(err) != want) {
			t.Errorf("command %d gave %v", i, out[i])
		}
	}
	if v, _ := s.state.Load().Get("k"); string(v) != "new" {
		t.Errorf("the state has %q", v)
	}
	var snap bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&snap); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(snap.Bytes())
	damaged[len(damaged)/2] ^= 1
	other := New(nil)
	before := other.state.Load()
	if err := other.Restore(bytes.NewReader(damaged)); !errkind.Is(err, errkind.Corrupt) || other.state.Load() != before {
		t.Errorf("a damaged snapshot: %v", err)
	}
	if err := other.Restore(&snap); err != nil || !reflect.DeepEqual(other.state.Load().Scan("", "", 0),
		s.state.Load().Scan("", "", 0)) || other.state.Load().Epoch != 2 {
		t.Errorf("a sound snapshot: %v", err)
	}
	if err := other.Commit(t.Context(), 2, nil); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("before its group is there: %v", err)
	}
}

func BenchmarkBackend(b *testing.B) {
	storagetest.Bench(b, func(b *testing.B) storage.Backend {
		store := leaderOf(b, several(b, 1))
		return store.Store
	})
}
