package ingest

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/logevents"
)

// An entity's checks are found by their names, also where the hashes of two are the same.
func TestChecksAsAMapHasThem(t *testing.T) {
	var c checks
	want := map[string]*key{}
	rng := rand.New(rand.NewPCG(1, 2))
	names := []string{"liquid", "costarring"} // the same hash
	if hashOf(names[0]) != hashOf(names[1]) {
		t.Fatal("their hashes differ")
	}
	for i := range 60 {
		names = append(names, fmt.Sprint("check-", i))
	}
	for range 5000 {
		name := names[rng.IntN(len(names))]
		switch rng.IntN(3) {
		case 0:
			if k := want[name]; k != nil {
				c.drop(k)
				delete(want, name)
			}
			c.drop(&key{})
		default:
			k := &key{res: eventstore.Result{Key: &eventstore.Key{Check: name}}}
			c.add(k)
			want[name] = k
		}
		if len(c) != len(want) {
			t.Fatalf("%d checks, want %d", len(c), len(want))
		}
		for _, name := range names {
			if find(c, name) != want[name] || find(c, []byte(name)) != want[name] {
				t.Fatalf("%s is another one", name)
			}
		}
	}
}

func beatOf(entity string, at int64) *monitor.Event {
	e := event(entity, monitor.KeepaliveCheck, 0, at)
	e.Check.Output = string(monitor.AppendKeepaliveOutput(nil, entity, at))
	return e
}

// What a keepalive says is made when it is read: everybody reads what was sent, here, after a restart, at a replica,
// and from another server.
func TestKeepalivesSayWhatTheySaid(t *testing.T) {
	fs := vfs.NewMem()
	log := &records{}
	w := start(t, fs, func(c *Config) { hooksOf(c).copies = log.take })
	replica := start(t, vfs.NewMem(), func(c *Config) { c.Shared = true })
	shard := ShardOf("default", "web-1")
	w.Resend(shard)
	failing := event("web-1", monitor.KeepaliveCheck, 1, 1020)
	odd := event("web-1", monitor.KeepaliveCheck, 0, 1030)
	odd.Check.Output = string(monitor.AppendKeepaliveOutput(nil, "web-1", 1000)) // as one before
	same := event("web-1", monitor.KeepaliveCheck, 0, 1031)
	same.Check.Output = odd.Check.Output
	for i, e := range []*monitor.Event{beatOf("web-1", 1000), beatOf("web-1", 1010), failing, odd, same,
		beatOf("web-1", 1040), beatOf("web-1", 1050)} {
		w.send(t, e)
		w.settled(t)
		polltest.Until(t, func() bool { return w.Settled(shard) }, "it is stored")
		log.apply(t, replica, shard)
		for who, in := range map[string]*Ingest{"the owner": w.Ingest, "the replica": replica.Ingest} {
			got, err := in.Get("default", "web-1", monitor.KeepaliveCheck)
			if err != nil {
				t.Fatal(err)
			}
			if got.Check.Output != e.Check.Output || got.Check.ProcessedBy != "web-1" || got.Check.Executed != e.Check.Executed {
				t.Fatalf("event %d, %s: %q, sent was %q", i, who, got.Check.Output, e.Check.Output)
			}
		}
		if i%3 == 2 {
			w.stop()
			w = start(t, fs, func(c *Config) { hooksOf(c).copies = log.take })
			w.Resend(shard)
		}
	}
	list, err := w.Of("default", "web-1")
	if err != nil || len(list) != 1 {
		t.Fatal(err)
	}
	told, err := ReadTold(AppendTold(nil, list[0]))
	if err != nil {
		t.Fatal(err)
	}
	here, errHere := list[0].Event()
	there, errThere := told.Event()
	if errHere != nil || errThere != nil || !reflect.DeepEqual(here, there) {
		t.Fatalf("%+v, elsewhere %+v", here.Check, there.Check)
	}
}

// A keepalive as the one before writes its result, and no text.
func TestAKeepaliveIsShortInTheLog(t *testing.T) {
	log := &records{}
	w := start(t, vfs.NewMem(), func(c *Config) { hooksOf(c).copies = log.take })
	for i := range int64(3) {
		w.send(t, beatOf("web-1", 1000+i))
		w.settled(t)
		polltest.Until(t, func() bool { return w.Settled(ShardOf("default", "web-1")) }, "it is stored")
	}
	if n := len(log.list[len(log.list)-1].records); n > 50 {
		t.Errorf("%d bytes", n)
	}
}

// BenchmarkEntityBytes tells what an owner has in memory of an agent that only keeps alive.
func BenchmarkEntityBytes(b *testing.B) {
	const many = 10_000
	for b.Loop() {
		w := start(b, vfs.NewMem(), func(c *Config) {
			hooksOf(c).wants = func(*monitor.Kind, monitor.Outcome) bool { return false }
			c.Open = func(l eventstore.Loaded) (eventstore.Store, error) { // on a disk: what it holds is not to count
				return logevents.Open(logevents.Config{FS: vfs.OS{}, Dir: b.TempDir(), Log: slog.New(slog.DiscardHandler)}, l)
			}
		})
		before := live()
		for i := range many {
			e := beatOf(fmt.Sprintf("agent-%06d", i), 1000)
			e.Entity.System = monitor.System{Hostname: e.Entity.Name, OS: "linux", Platform: "ubuntu", PlatformFamily: "debian",
				PlatformVersion: "22.04", Arch: "amd64", LibCType: "glibc",
				Network: monitor.Network{Interfaces: []monitor.Interface{{Name: "lo",
					Addresses: []string{"127.0.0.1/8", "::1/128"}}, {Name: "eth0", MAC: "02:42:ac:11:00:02",
					Addresses: []string{"172.17.0.2/16"}}}}}
			w.send(b, e)
		}
		w.settled(b)
		for i := range w.shards {
			polltest.Until(b, func() bool { return w.Settled(uint16(i)) }, "all is stored")
		}
		b.ReportMetric(float64(int64(live())-int64(before))/many, "B/owned")
		w.stop()
	}
}

func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// records are what Replicate was given.
type records struct {
	mu   sync.Mutex
	list []replicated
}

type replicated struct {
	shard   uint16
	reset   bool
	until   uint64
	records []byte
}

func (r *records) take(shard uint16, reset bool, until uint64, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, replicated{shard, reset, until, bytes.Clone(b)})
}

// apply has a replica follow, from the newest whole on.
func (r *records) apply(t *testing.T, to *world, shard uint16) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.list {
		if x.shard != shard {
			continue
		}
		if err := to.Apply(shard, x.reset, x.until, x.records); err != nil {
			t.Fatal(err)
		}
	}
	r.list = nil
}
