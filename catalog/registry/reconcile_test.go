package registry

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
)

func member(name, id, addr string, status MemberStatus) Member {
	return Member{Name: name, Addr: addr, Status: status, Tags: map[string]string{
		"role": "node", "id": id, "build": "1.21.4:corbel0.1.0", "vsn": "2", "vsn_min": "2", "vsn_max": "3",
	}}
}

func server(name, id string) Member {
	m := member(name, id, "10.0.0.9", MemberAlive)
	m.Tags["role"], m.Tags["port"], m.Tags["grpc_tls_port"] = "consul", "8300", "8503"
	return m
}

// tell writes commands as one line each.
func tell(commands []catalog.Command) string {
	var b strings.Builder
	one := func(r *catalog.Register) {
		fmt.Fprintf(&b, "register %s %s %s", r.Node.Name, r.Node.ID, r.Node.Address)
		if r.SkipNodeUpdate {
			b.WriteString(" skip")
		}
		if r.Service != nil {
			fmt.Fprintf(&b, " service=%s:%d", r.Service.Name, r.Service.Port)
		}
		for _, c := range r.Checks {
			fmt.Fprintf(&b, " %s=%s", c.ID, c.Status)
		}
		b.WriteString("\n")
	}
	for _, c := range commands {
		switch c := c.(type) {
		case *catalog.RegisterBatch:
			for _, r := range c.Registrations {
				one(r)
			}
		case *catalog.Deregister:
			fmt.Fprintf(&b, "deregister %s\n", c.Node)
		default:
			fmt.Fprintf(&b, "%T\n", c)
		}
	}
	return strings.TrimSpace(b.String())
}

// gossiped is a registered node with a serfHealth check.
func gossiped(name, id, addr string, status catalog.Health) *catalog.Register {
	return &catalog.Register{
		Node: catalog.Node{Name: name, ID: id, Address: addr, Meta: map[string]string{"rack": "7"},
			TaggedAddresses: map[string]string{"wan": "1.2.3.4"}},
		Checks: []*catalog.Check{serfCheck(name, status)},
	}
}

func TestReconcile(t *testing.T) {
	byHand := &catalog.Register{Node: catalog.Node{Name: "esm", Address: "10.0.0.7"}}
	synced := &catalog.Register{Node: catalog.Node{Name: "a", ID: "id-a", Address: "10.0.0.1"}}
	gone := func(*catalog.Node) Absence { return AbsenceGone }
	for _, c := range []struct {
		name    string
		catalog []catalog.Command
		members []Member
		missing func(*catalog.Node) Absence
		want    string
	}{
		{name: "nothing"},
		{"a new member", nil, []Member{member("a", "id-a", "10.0.0.1", MemberAlive)}, nil,
			"register a id-a 10.0.0.1 skip serfHealth=passing"},
		{"known and well", []catalog.Command{gossiped("A", "ID-a", "10.0.0.1", catalog.Passing)},
			[]Member{member("a", "id-a", "10.0.0.1", MemberAlive)}, nil, ""},
		{"its agent was first", []catalog.Command{synced}, []Member{member("a", "id-a", "10.0.0.1", MemberAlive)}, nil,
			"register a id-a 10.0.0.1 skip serfHealth=passing"},
		{"another address", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Passing)},
			[]Member{member("a", "id-a", "10.0.0.2", MemberAlive)}, nil, "register a id-a 10.0.0.2"},
		{"back again", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Critical)},
			[]Member{member("a", "id-a", "10.0.0.1", MemberAlive)}, nil, "register a id-a 10.0.0.1 skip serfHealth=passing"},
		{"failed", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Passing)},
			[]Member{member("a", "id-a", "10.0.0.1", MemberFailed)}, nil, "register a id-a 10.0.0.1 skip serfHealth=critical"},
		{"failed, known so", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Critical)},
			[]Member{member("a", "id-a", "10.0.0.1", MemberFailed)}, nil, ""},
		{"failed, never registered", nil, []Member{member("a", "id-a", "10.0.0.1", MemberFailed)}, nil, ""},
		{"failed, its name has another host", []catalog.Command{gossiped("a", "id-b", "10.0.0.1", catalog.Passing)},
			[]Member{member("a", "id-a", "10.0.0.1", MemberFailed)}, nil, ""},
		{"leaving", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Passing)},
			[]Member{member("a", "id-a", "10.0.0.1", MemberLeaving)}, gone, ""},
		{"left", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Passing)},
			[]Member{member("A", "id-a", "10.0.0.1", MemberLeft)}, nil, "deregister a"},
		{"left is this server", []catalog.Command{gossiped("self", "id-s", "10.0.0.1", catalog.Passing)},
			[]Member{member("self", "id-s", "10.0.0.1", MemberLeft)}, nil, ""},
		{"left, but the name was registered by hand", []catalog.Command{byHand},
			[]Member{member("esm", "id-e", "10.0.0.7", MemberLeft)}, nil, ""},
		{"reaped", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Critical), byHand}, nil, gone, "deregister a"},
		{"not met yet", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Passing), byHand}, nil,
			func(*catalog.Node) Absence { return AbsenceFailed }, "register a id-a 10.0.0.1 skip serfHealth=critical"},
		{"replaced by a host of the same name", []catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Passing)},
			[]Member{member("a", "id-b", "10.0.0.2", MemberAlive)}, nil,
			"register a id-a 10.0.0.1 skip serfHealth=critical\nregister a id-b 10.0.0.2 serfHealth=passing"},
		{"renamed", []catalog.Command{gossiped("b", "id-a", "10.0.0.1", catalog.Passing)},
			[]Member{member("a", "id-a", "10.0.0.1", MemberAlive), member("b", "id-a", "10.0.0.1", MemberFailed)}, nil,
			"register b id-a 10.0.0.1 skip serfHealth=critical\nregister a id-a 10.0.0.1 skip serfHealth=passing"},
		{"a server", nil, []Member{server("s1", "id-s")}, nil,
			"register s1 id-s 10.0.0.9 skip service=consul:8300 serfHealth=passing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state, results, _ := statestore.Empty().Apply(c.catalog)
			for _, r := range results {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			options := ReconcileOptions{Self: "self", Datacenter: "dc1", Version: "9.9.9", Missing: c.missing}
			commands := Reconcile(state, c.members, options)
			if got := tell(commands); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
			// What it asks for is accepted, and enough.
			next, results, _ := state.Apply(commands)
			for i, r := range results {
				if r.Err != nil || len(r.TxnErrors) > 0 {
					t.Errorf("refused: %s: %v %v", tell(commands[i:i+1]), r.Err, r.TxnErrors)
				}
			}
			if c.name == "renamed" {
				if next.NodeByID("id-a").Name != "a" || next.Node("b") != nil {
					t.Error("the host is not found under its new name alone")
				}
				return
			}
			if again := Reconcile(next, c.members, options); len(again) != 0 {
				t.Errorf("not settled by the first pass; wants:\n%s", tell(again))
			}
		})
	}
}

func TestReconciledServer(t *testing.T) {
	state, _, _ := statestore.Empty().Apply(Reconcile(statestore.Empty(), []Member{server("s1", "id-s")},
		ReconcileOptions{Datacenter: "dc1", Version: "9.9.9"}))
	node, service := state.Node("s1"), state.Service("s1", "consul")
	if got := fmt.Sprint(node.Meta); got != "map[consul-network-segment: consul-version:1.21.4]" {
		t.Errorf("node meta %s", got)
	}
	want := "map[grpc_port:0 grpc_tls_port:8503 non_voter:false raft_version:3 read_replica:false " +
		"serf_protocol_current:2 serf_protocol_max:5 serf_protocol_min:1 version:1.21.4]"
	if got := fmt.Sprint(service.Meta); got != want {
		t.Errorf("service meta\n%s, want\n%s", got, want)
	}
	if c := state.Check("s1", catalog.SerfHealthID); c.Output != catalog.SerfAliveOutput ||
		c.Name != catalog.SerfHealthName {
		t.Errorf("serfHealth %+v", c)
	}
}

func TestReconcileKeepsWhatAgentsSync(t *testing.T) {
	state, _, _ := statestore.Empty().Apply([]catalog.Command{gossiped("a", "id-a", "10.0.0.1", catalog.Critical)})
	for _, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		next, _, _ := state.Apply(Reconcile(state, []Member{member("a", "id-a", addr, MemberAlive)}, ReconcileOptions{}))
		node := next.Node("a")
		if node.Address != addr || node.Meta["rack"] != "7" || len(node.Meta) != 1 ||
			node.TaggedAddresses["wan"] != "1.2.3.4" {
			t.Errorf("node is now %+v", node)
		}
	}
}

func TestLargeFleetIsRegisteredInBoundedBatches(t *testing.T) {
	var members []Member
	for i := range 1000 {
		members = append(members, member(fmt.Sprintf("n%04d", i), fmt.Sprintf("id-%04d", i), "10.0.0.1", MemberAlive))
	}
	commands := Reconcile(statestore.Empty(), members, ReconcileOptions{})
	if len(commands) != 8 {
		t.Errorf("%d commands for 1,000 members", len(commands))
	}
	for _, c := range commands {
		if n := len(c.(*catalog.RegisterBatch).Registrations); n > registrationsPerBatch {
			t.Errorf("%d registrations in a command", n)
		}
	}
}

func health(r *Registry, node string) string {
	if c := r.State().Check(node, catalog.SerfHealthID); c != nil {
		return c.Status.String()
	}
	return "none"
}

func TestMembershipFollowsThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := member("a", "id-a", "10.0.0.1", MemberAlive), member("b", "id-b", "10.0.0.2", MemberAlive)
		pool := newFakeMembers(a, b)
		r, log := newRegistry(t, Config{Members: pool}, true)
		apply(t, r, gossiped("old", "id-o", "10.0.0.3", catalog.Passing))
		defer start(r)()
		begin := time.Now()
		at(begin, time.Second)
		if health(r, "a") != "passing" || health(r, "b") != "passing" {
			t.Fatal("the members are not registered")
		}
		b.Status = MemberFailed
		pool.set(a, b)
		synctest.Wait()
		if health(r, "b") != "critical" {
			t.Error("a failure waits")
		}
		log.elect(false)
		synctest.Wait()
		pool.set(a) // reaped while nobody leads here
		at(begin, 10*time.Second)
		if r.State().Node("b") == nil {
			t.Error("a follower deregistered")
		}
		log.elect(true)
		at(begin, 11*time.Second)
		if r.State().Node("b") != nil {
			t.Error("the pool forgot b, the catalog did not")
		}
		if health(r, "old") != "passing" {
			t.Error("a node that this process has not met yet was judged at once")
		}
		at(begin, unseenFailAfter+3*time.Minute)
		if health(r, "old") != "critical" {
			t.Error("a node that does not show up passes for ever")
		}
		at(begin, unseenGoneAfter-time.Minute)
		if r.State().Node("old") == nil {
			t.Error("an unseen node went before the pool would have let it go")
		}
		at(begin, unseenGoneAfter+10*time.Minute)
		if r.State().Node("old") != nil || r.State().Node("a") == nil {
			t.Error("an unseen node stays for ever, or a living one went")
		}
	})
}

// Two hosts with one node ID must not keep the other members out.
func TestRefusedMemberHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newFakeMembers(member("a", "same", "10.0.0.1", MemberAlive), member("b", "same", "10.0.0.2", MemberAlive),
			member("c", "id-c", "10.0.0.3", MemberAlive))
		r, log := newRegistry(t, Config{Members: pool}, true)
		defer start(r)()
		begin := time.Now()
		at(begin, 90*time.Second)
		if health(r, "a") != "passing" || r.State().Node("b") != nil || health(r, "c") != "passing" {
			t.Errorf("a %s, b %v, c %s", health(r, "a"), r.State().Node("b"), health(r, "c"))
		}
		if n := log.count(catalog.OpRegisterBatch); n > 3 {
			t.Errorf("the refused member was proposed %d times in 90 s", n)
		}
	})
}

func TestTombstonesAreReaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRegistry(t, Config{}, true)
		defer start(r)()
		begin := time.Now()
		synctest.Wait()
		apply(t, r, set("d/k", "v"))
		apply(t, r, set("z", "v"))
		apply(t, r, &catalog.KV{Verb: catalog.KVDelete, Pair: catalog.KVPair{Key: "d/k"}})
		at(begin, 15*time.Minute-time.Second)
		if n := r.State().Counts().Tombstones; n != 1 {
			t.Fatalf("%d tombstones before their time", n)
		}
		at(begin, 16*time.Minute)
		if n := r.State().Counts().Tombstones; n != 0 {
			t.Errorf("%d tombstones after their time", n)
		}
		at(begin, 3*time.Hour)
		if n := log.count(catalog.OpReapTombstones); n != 1 {
			t.Errorf("%d proposals to reap one tombstone", n)
		}
	})
}

func TestIndexHistory(t *testing.T) {
	h := newIndexHistory(10*time.Second, time.Second)
	for i := range 100 {
		now := time.Duration(i) * time.Second
		want := uint64(0)
		if i >= 10 {
			want = uint64(1000 + 5*(i-10))
		}
		if got := h.mark(now, uint64(1000+5*i)); got != want {
			t.Fatalf("after %v: %d, want %d", now, got, want)
		}
	}
	// The State was replaced by an older one: nothing is known of its past.
	for i := range 10 {
		if got := h.mark(100*time.Second+time.Duration(i)*time.Second, uint64(7+i)); got != 0 {
			t.Fatalf("%d s after the replacement: %d", i, got)
		}
	}
	if got := h.mark(110*time.Second, 50); got != 7 {
		t.Errorf("10 s after the replacement: %d", got)
	}
}

// TestReconcileOverwritesNoNewNode: an agent that registered its node after the comparison read the state, and before
// the command of that comparison is applied, keeps what it said of itself.
func TestReconcileOverwritesNoNewNode(t *testing.T) {
	commands := Reconcile(statestore.Empty(), []Member{member("a", "id-a", "10.0.0.1", MemberAlive)},
		ReconcileOptions{Self: "self", Datacenter: "dc1"})
	own := gossiped("a", "id-a", "10.0.0.1", catalog.Critical)
	own.Node.Meta = map[string]string{"rack": "r7"}
	after, results, _ := statestore.Empty().Apply(append([]catalog.Command{own}, commands...))
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if n := after.Node("a"); n == nil || n.Meta["rack"] != "r7" {
		t.Errorf("the node is %+v", n)
	}
	if c := after.Check("a", catalog.SerfHealthID); c == nil || c.Status != catalog.Passing {
		t.Errorf("its health is %+v", c)
	}
}
