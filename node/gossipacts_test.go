package node

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/forward"
	"corbel.dev/corbel/node/planes/jobs/regions"
)

// trap listens with a certificate and counts what got through to it: the bytes that a process sends once it trusts
// who answers.
type trap struct {
	port          string
	dialled, told atomic.Int64
}

// newTrap makes a trap; without a certificate it takes what comes as it is.
func newTrap(t *testing.T, c *tls.Certificate) *trap {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tr := &trap{port: strconv.Itoa(raw.Addr().(*net.TCPAddr).Port)}
	l := raw
	if c != nil {
		l = tls.NewListener(raw, &tls.Config{Certificates: []tls.Certificate{*c}, ClientAuth: tls.RequestClientCert})
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tr.dialled.Add(1)
			wg.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				b := make([]byte, 1024)
				if n, err := conn.Read(b); err == nil {
					tr.told.Add(int64(n))
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return tr
}

// liar has the key of a server's gossip, and no certificate of its authority. It says that it is a server at the trap.
type liar struct {
	name, id string
	trap     *trap // of its RPC port
	wan      *trap // of its gossip between datacenters
	far      *trap // of the RPC port of dc2's server that it claims to be as well
}

const liarName, liarID = "liar", "00000000-0000-4000-8000-00000000dead"

// joinAs lets a pool with the tags join the gossip at an address.
func joinAs(t *testing.T, cfg member.Config, addr string) {
	t.Helper()
	cfg.Bind, cfg.Profile = "127.0.0.1:0", member.Local
	p, err := member.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if _, err := p.Join(t.Context(), []string{addr}); err != nil {
		t.Fatal(err)
	}
}

// refusedBy fails unless the error says that whoever answers has no certificate that will do.
func refusedBy(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%s: %v", what, err)
	}
}

// gossipActs are the acts of those who read the pool: what comes of them when somebody with the gossip key and no
// certificate claims to be a server. None of the traps is told anything in any of them.
var gossipActs = map[member.Act]func(t *testing.T, m *testMember, l liar){
	member.ActShow: func(t *testing.T, m *testMember, l liar) {
		m.awaitAsk("GET", "/v1/agent/members", "", 200, l.name)
	},
	member.ActReconcile: func(t *testing.T, m *testMember, l liar) {
		polltest.Until(t, func() bool { return m.registry.State().Node(l.name) != nil }, "the node in the catalog")
		if own := m.registry.State().Node(m.Cfg.Node.Name); own == nil || own.ID != m.ID {
			t.Errorf("the server's own node is %+v", own)
		}
	},
	member.ActSuggestServer: func(t *testing.T, m *testMember, l liar) {
		if !slices.ContainsFunc(m.raft.Suggestions(), func(s group.Suggestion) bool { return s.ID == l.id }) {
			t.Error("the liar is not suggested")
		}
		polltest.Until(t, func() bool { return l.trap.dialled.Load() > 0 }, "the leader to ask the liar")
		if members := m.members(); len(members) != 1 || members[0].ID != m.ID {
			t.Errorf("the members of the group are %v", members)
		}
	},
	member.ActAskServer: func(t *testing.T, m *testMember, l liar) {
		addr := net.JoinHostPort("127.0.0.1", l.trap.port)
		if !slices.Contains(m.LivingServers(), addr) {
			t.Errorf("the liar is none of the servers to ask: %v", m.LivingServers())
		}
		_, err := m.RPC.Call(t.Context(), addr, forward.MethodHTTP, []byte("a token"))
		refusedBy(t, "a request to the liar", err)
	},
	member.ActAskMember: func(t *testing.T, m *testMember, l liar) {
		_, _, err := m.askMember(t.Context(), l.name, "/v1/agent/self")
		refusedBy(t, "a question to the liar", err)
	},
	member.ActCarryKeys: func(t *testing.T, m *testMember, l liar) {
		a, err := m.Pool.InstallKey(t.Context(), gossipKey(7))
		if err == nil || a.NumErr != 1 || !strings.Contains(a.Messages[l.name], "certificate") || a.Keys[gossipKey(7)] != 1 {
			t.Errorf("a key is installed with %+v, %v", a, err)
		}
	},
	member.ActKnowPlain: func(t *testing.T, m *testMember, l liar) {
		if m.raft.IsServer(netip.MustParseAddr("127.0.0.9"), wire.ProtoRaft) {
			t.Error("an address that gossip names is a server's")
		}
	},
	member.ActHintJoin: func(t *testing.T, m *testMember, l liar) {
		if hints := gossipOfServers(m.Pool); !slices.Contains(hints, m.gossip) {
			t.Errorf("a new agent is not told of the honest server: %v", hints)
		}
	},
	member.ActFlood: func(t *testing.T, m *testMember, l liar) {
		polltest.Until(t, func() bool { return l.wan.dialled.Load() > 0 }, "the server to bring the liar into the WAN pool")
		if _, ok := m.wan.Pool.Member(member.ActShow, wan.Name(l.name, "dc1")); ok {
			t.Error("who answers nothing is in the WAN pool")
		}
	},
	member.ActFederate: func(t *testing.T, m *testMember, l liar) {
		addr := net.JoinHostPort("127.0.0.1", l.far.port)
		polltest.Until(t, func() bool { return m.wan.DatacenterOf(addr) == "dc2" }, "the server to know dc2")
		for _, method := range []string{forward.MethodHTTP, regions.MethodName} {
			_, err := m.wan.Client.Call(t.Context(), addr, method, []byte("a token"))
			refusedBy(t, "a request to dc2", err)
		}
	},
}

func gossipKey(fill byte) string {
	return base64.StdEncoding.EncodeToString(slices.Repeat([]byte{fill}, 32))
}

// TestGossipActs is C11 for what a process does by what gossip says of its members: every row of the table that
// core/member keeps.
func TestGossipActs(t *testing.T) {
	t.Parallel()
	a := wiretest.NewAuthority(t)
	m := startServer(t, "honest", fmt.Sprintf(quickPilot+`
bootstrap = true
encrypt = %q
ports { serf_wan = 0 }`, gossipKey(1))+
		a.RPCBlock(a.Issue(goodName, -time.Minute, time.Hour), "verify_server_hostname = true"))
	polltest.Get(t, m.wan.Pool.Ready(), "the WAN pool")
	polltest.Until(t, func() bool { return m.raft.IsLeader() }, "a leader")
	forged := wiretest.NewAuthority(t).Issue(goodName, -time.Minute, time.Hour)
	farForged := wiretest.NewAuthority(t).Issue("server.dc2.consul", -time.Minute, time.Hour)
	l := liar{name: liarName, id: liarID, trap: newTrap(t, &forged), far: newTrap(t, &farForged), wan: newTrap(t, nil)}
	tags := m.Tags()
	maps.Copy(tags, map[string]string{"id": l.id, "port": l.trap.port, wan.TagPort: l.wan.port})
	joinAs(t, member.Config{Name: l.name, Tags: tags, Encrypt: gossipKey(1)}, m.gossip)
	far := maps.Clone(tags)
	maps.Copy(far, map[string]string{"dc": "dc2", "port": l.far.port})
	_, wanPort := m.wan.Pool.Addr()
	joinAs(t, member.Config{Name: "far.dc2", Tags: far, Encrypt: gossipKey(1)},
		net.JoinHostPort("127.0.0.1", strconv.Itoa(wanPort)))
	polltest.Until(t, func() bool { return len(m.LivingServers()) == 1 }, "the liar to be believed a server")
	for act, row := range member.Acts() {
		try := gossipActs[act]
		if (try != nil) != (act >= member.ActShow) {
			t.Errorf("%s: nobody tries it", act)
		}
		if try != nil {
			t.Run(row.Name, func(t *testing.T) { try(t, m, l) })
		}
	}
	if n := l.trap.told.Load() + l.far.told.Load(); n != 0 {
		t.Errorf("the liar was told %d bytes", n)
	}
}
