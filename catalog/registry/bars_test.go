package registry

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

func barNode(t *testing.T, r *Registry, name, id string, hold time.Duration) {
	t.Helper()
	bar := catalog.NodeBar{Node: name, ID: id, Time: time.Now(), Hold: hold}
	ops, err := statestore.BarOps(r.State(), &bar)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.SetRecords(t.Context(), ops...); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := r.Apply(t.Context(), &catalog.Deregister{Node: name}); err != nil {
		t.Fatal(err)
	}
}

// A node that was removed by force comes back by no way until its hold is over; then gossip brings it back.
func TestBarHoldsANodeOutUntilItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newFakeMembers(member("a", "id-a", "10.0.0.1", MemberAlive), member("b", "id-b", "10.0.0.2", MemberAlive))
		r, log := newRegistry(t, Config{Members: pool, ReconcileInterval: time.Minute}, true)
		defer start(r)()
		begin := time.Now()
		at := func(d time.Duration) {
			<-time.NewTimer(time.Until(begin.Add(d))).C
			synctest.Wait()
		}
		at(time.Second)
		if r.State().Node("b") == nil {
			t.Fatal("b is not registered")
		}
		barNode(t, r, "b", "id-b", time.Hour)
		for _, n := range []catalog.Node{{Name: "B", Address: "1"}, {Name: "renamed", ID: "ID-B", Address: "1"}} {
			res, err := r.Apply(t.Context(), &catalog.Register{Node: n})
			if err != nil || res.Err == nil || !strings.Contains(res.Err.Error(), "removed by force") ||
				!strings.Contains(res.Err.Error(), "/v1/catalog/node/b/bar") {
				t.Errorf("%s: %v %v", n.Name, err, res.Err)
			}
			res, err = r.Apply(t.Context(), &catalog.RegisterBatch{Registrations: []*catalog.Register{{Node: n},
				{Node: catalog.Node{Name: "other", Address: "2"}}}})
			if err != nil || len(res.TxnErrors) != 1 || r.State().Node("other") == nil {
				t.Errorf("batch with %s: %v %v", n.Name, err, res.TxnErrors)
			}
			res, err = r.Apply(t.Context(), &catalog.Txn{Ops: []catalog.TxnOp{{Verb: catalog.TxnSet, Node: &n}}})
			if err != nil || len(res.TxnErrors) != 1 {
				t.Errorf("transaction with %s: %v %v", n.Name, err, res.TxnErrors)
			}
		}
		proposals := log.proposed()
		at(59 * time.Minute)
		if r.State().Node("b") != nil || r.State().Node("renamed") != nil {
			t.Error("a barred node is back before its time")
		}
		if n := log.proposed() - proposals; n > 0 {
			t.Errorf("the leader proposed %d commands for a node that is barred", n)
		}
		at(62 * time.Minute)
		if r.State().Record(catalog.RecordNodeBar, "b") != nil {
			t.Error("the bar outlived its hold")
		}
		if r.State().Node("b") == nil {
			t.Error("gossip did not bring the node back")
		}
	})
}

// proposed counts what was proposed, but for the reaping of what was deleted.
func (l *directLog) proposed() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.seen {
		if c.Op() != catalog.OpReapTombstones {
			n++
		}
	}
	return n
}

// The bar of an ID moves to the name that is removed next, and a snapshot carries it.
func TestBarsOfOneID(t *testing.T) {
	r, _ := newRegistry(t, Config{}, true)
	barNode(t, r, "One", "ID", time.Hour)
	barNode(t, r, "two", "id", time.Hour)
	st := r.State()
	if st.Record(catalog.RecordNodeBar, "one") != nil || st.NodeBarOf("TWO", "") == nil ||
		st.NodeBarOf("x", "Id") == nil || st.NodeBarOf("x", "y") != nil {
		t.Error("the bars are not those of the newest removal")
	}
}

func TestRenewLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRegistry(t, Config{}, true)
		defer start(r)()
		synctest.Wait()
		for _, reg := range []*catalog.Register{leased("n", "10s"), leased("plain", "")} {
			if res, err := r.Apply(t.Context(), reg); err != nil || res.Err != nil {
				t.Fatal(err, res.Err)
			}
		}
		proposals := log.proposed()
		for range 5 {
			<-time.NewTimer(8 * time.Second).C
			if n, err := r.RenewLease(t.Context(), "N"); err != nil || n.Name != "n" {
				t.Fatal(n, err)
			}
		}
		if n := log.proposed() - proposals; n > 0 {
			t.Errorf("renewing wrote %d commands", n)
		}
		<-time.NewTimer(12 * time.Second).C
		synctest.Wait()
		if _, err := r.RenewLease(t.Context(), "n"); !errkind.Is(err, errkind.NotFound) {
			t.Errorf("a lease that ran out: %v", err)
		}
		if _, err := r.RenewLease(t.Context(), "plain"); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("a node without a lease: %v", err)
		}
		log.elect(false)
		if _, err := r.RenewLease(t.Context(), "plain"); !errkind.Is(err, errkind.NotLeader) {
			t.Errorf("a follower: %v", err)
		}
	})
}

// A node's own reconnect timeout takes it out sooner, or keeps it longer, than the pool's.
func TestReconnectTimeoutOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := []Member{member("short", "id-s", "10.0.0.1", MemberAlive), member("long", "id-l", "10.0.0.2", MemberAlive),
			member("plain", "id-p", "10.0.0.3", MemberAlive)}
		pool := newFakeMembers(members...)
		r, _ := newRegistry(t, Config{Members: pool, ReconcileInterval: time.Minute}, true)
		defer start(r)()
		begin := time.Now()
		at := func(d time.Duration) {
			<-time.NewTimer(time.Until(begin.Add(d))).C
			synctest.Wait()
		}
		at(time.Second)
		for name, own := range map[string]string{"short": "10m", "long": "100h"} {
			n := *r.State().Node(name)
			n.Meta = map[string]string{ReconnectMeta: own}
			if res, err := r.Apply(t.Context(), &catalog.Register{Node: n}); err != nil || res.Err != nil {
				t.Fatal(err, res.Err)
			}
		}
		here := func(want string) {
			t.Helper()
			var names []string
			for n := range r.State().Nodes() {
				names = append(names, n.Name)
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("after %v the nodes are %q, want %q", time.Since(begin), got, want)
			}
		}
		for i := range members {
			members[i].Status = MemberFailed
		}
		pool.set(members...)
		at(9 * time.Minute)
		here("long plain short")
		at(13 * time.Minute)
		here("long plain")
		at(72 * time.Hour)
		pool.set() // the pool forgets them
		at(72*time.Hour + 3*time.Minute)
		here("long")
		at(100*time.Hour + 5*time.Minute)
		here("")
	})
}
