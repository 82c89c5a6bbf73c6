package node

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/enroll"
	"corbel.dev/corbel/node/forward"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
	doctorplane "corbel.dev/corbel/node/planes/doctor"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	usageplane "corbel.dev/corbel/node/planes/usage"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/copies"
	usageparts "corbel.dev/corbel/usage/parts"
	"corbel.dev/corbel/usage/relay"
	"corbel.dev/corbel/usage/router"
)

// The role matrix of internal messages (C11): whom each RPC method and each protocol of the wire is for. What a
// server registers must be here, and nothing else: a new method without a row fails the test, one without roles does
// not compile.
var methodsFor = map[wire.Roles][]string{
	wire.Servers: {
		monitorplane.MethodPropose, monitorplane.MethodFates, monitorplane.MethodReplicators, "monitor.results",
		"monitor.replicate", "monitor.ping",
		"monitor.release", "monitor.ask",
		"monitor.follow", "monitor.execute", "monitor.rounds.tell", "monitor.rounds.begin", "monitor.rounds.note",
		"monitor.rounds.hand",
		monitorplane.MethodCatalog, coordinates.MethodJudged, doctorplane.MethodAsk, doctorplane.MethodAskStream,
		enroll.MethodIntroduce, base.MethodKeyring,
		usageplane.MethodPropose, usageplane.MethodIndex, "usage.roles", "usage.explain", "usage.refused", "usage.rejected",
		router.MethodTake,
		aggregator.MethodExtract, aggregator.MethodSeries, aggregator.MethodFind, aggregator.MethodLate,
		aggregator.MethodVersion, aggregator.MethodIdentities, aggregator.MethodRecent,
		usageparts.MethodPing, usageparts.MethodStatus, usageparts.MethodFeed, usageparts.MethodRead,
		usageparts.MethodAnew, usageparts.MethodWhole, usageparts.MethodKeys, usageparts.MethodYield, usageparts.MethodLeaves,
		copies.MethodReset, copies.MethodCopy, copies.MethodWhole, copies.MethodForget, copies.MethodRelease,
		copies.MethodGive,
		"jobs.propose", "jobs.http", "jobs.monitor",
		peering.MethodEstablish, peering.MethodPull, peering.MethodPush,
		"jobs.snapshot.save", "jobs.snapshot.offer", "jobs.snapshot.piece", "jobs.snapshot.restore",
	},
	// The pool between datacenters is theirs together.
	wire.AllServers: {wan.MethodKeys, "jobs.region", "jobs.region.http"},
	// The token of each of these is judged by what it is to do; MethodClock and the trust domain tell what every client
	// may know.
	wire.Members: {catalogplane.MethodApply, catalogplane.MethodNode, methodResolve, coordinates.MethodUpdate,
		doctorplane.MethodTell, methodDNS,
		"mesh.sign", relay.MethodDeliver, relay.MethodProducts,
		"jobs.node.register", "jobs.node.heartbeat", "jobs.node.allocs", "jobs.node.update", "jobs.node.services",
		"jobs.node.instances", "jobs.node.identity", "jobs.node.variable",
		doctorplane.MethodClock, enroll.MethodTrustDomain},
	// The requests in the first four carry tokens of their own.
	wire.Federation: {forward.MethodHTTP, forward.MethodStream, forward.MethodOffer, forward.MethodUpload, wan.MethodPing},
}

// usageOn has all parts of the usage plane that register something.
const usageOn = "usage { enabled = true, own_planes = false, cache { port = 0, cluster = true } }\n"

// routesFor are the protocols of the servers' port, by their names and groups.
var routesFor = map[string]wire.Roles{
	"Raft 1": wire.Servers, "Raft 3": wire.Servers, "Raft 4": wire.Servers, "Raft 5": wire.Servers,
	"RPC 0": wire.Federation, "the feed 0": wire.Members, "enrolment 0": wire.Anyone,
	"cluster peering 0": wire.Anyone,
}

// enrolmentFor are the methods that strangers may call, on a protocol of their own: a token, a JWT or nothing is judged
// by the handler.
var enrolmentFor = map[string]wire.Roles{
	enroll.MethodTrustDomain: wire.Anyone, issue.Method: wire.Anyone, enroll.MethodIntroduce: wire.Anyone,
}

// runEnrolment lets every caller try what strangers may.
func runEnrolment(t *testing.T, m *testMember, callers []wiretest.Caller) {
	t.Helper()
	methods := m.enrolment().Strangers().Methods()
	for _, c := range callers {
		client := callerAs(t, c.Open, wire.ProtoEnroll)
		for _, method := range methods {
			want, ok := enrolmentFor[method.Name]
			if !ok || method.Roles != want {
				t.Errorf("%s is for %s; the table says %v", method.Name, method.Roles, want)
			}
			if got := outcome(t, client, m.RPCAddr(), method); got != (want&wire.Roles(c.Role) != 0) {
				t.Errorf("%s calls %s to enrol: let in %v", c.Name, method.Name, got)
			}
		}
	}
	if len(methods) != len(enrolmentFor) {
		t.Errorf("%d methods to enrol, %d in the table", len(methods), len(enrolmentFor))
	}
}

// peeringFor are the methods that servers of other clusters may call, on a protocol of their own: the secret of a
// peering is judged by the handler.
var peeringFor = map[string]wire.Roles{
	peering.MethodEstablish: wire.Anyone, peering.MethodPull: wire.Anyone, peering.MethodPush: wire.Anyone,
}

// runPeering lets every caller try what servers of other clusters may.
func runPeering(t *testing.T, m *testMember, callers []wiretest.Caller) {
	t.Helper()
	methods := m.peers.Strangers().Methods()
	for _, c := range callers {
		client := callerAs(t, c.Open, wire.ProtoPeering)
		for _, method := range methods {
			tryPeering(t, m, c.Name, client, method)
		}
	}
	if len(methods) != len(peeringFor) {
		t.Errorf("%d methods of peering, %d in the table", len(methods), len(peeringFor))
	}
}

// tryPeering calls a method without a secret, which is as far as anybody gets.
func tryPeering(t *testing.T, m *testMember, who string, client *rpc.Client, method rpc.Method) {
	t.Helper()
	if want, ok := peeringFor[method.Name]; !ok || method.Roles != want {
		t.Errorf("%s is for %s; the table says %v", method.Name, method.Roles, want)
	}
	if !outcome(t, client, m.RPCAddr(), method) {
		t.Errorf("%s may not call %s", who, method.Name)
	}
	_, err := client.Call(t.Context(), m.RPCAddr(), method.Name, (&peering.Ask{ID: "x", Secret: "y"}).Encode())
	if !errkind.Is(err, errkind.Denied) {
		t.Errorf("%s calls %s without a secret: %v", who, method.Name, err)
	}
}

// outcome says whether a caller got as far as a method's handler. What the handler made of a message that means
// nothing does not matter.
func outcome(t *testing.T, c *rpc.Client, addr string, m rpc.Method) (in bool) {
	t.Helper()
	polltest.NoError(t, 2*time.Minute, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var err error
		if m.Stream {
			var s *rpc.Stream
			if s, err = c.Stream(ctx, addr, m.Name, []byte{0xff}); err == nil {
				_, err = s.Recv()
				_ = s.Close()
			}
		} else {
			_, err = c.Call(ctx, addr, m.Name, []byte{0xff})
		}
		in = !errkind.Is(err, errkind.Denied) || !strings.Contains(err.Error(), "rpc: "+m.Name+" is for ")
		if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil && errkind.Is(err, errkind.Unavailable) &&
			strings.Contains(err.Error(), "connecting to") {
			return err // nothing was asked yet
		}
		return nil
	}, "an answer of %s", m.Name)
	return in
}

// runMatrix compares what a server registered with the tables, and lets every caller try all of it.
func runMatrix(t *testing.T, m *testMember, callers []wiretest.Caller) {
	t.Helper()
	addr := m.Wire.Addr().String()
	wanted := map[string]wire.Roles{}
	for roles, names := range methodsFor {
		for _, name := range names {
			wanted[name] = roles
		}
	}
	methods := m.RPCSrv.Methods()
	for _, method := range methods {
		if want, ok := wanted[method.Name]; !ok || method.Roles != want {
			t.Errorf("%s is for %s; the table says %v", method.Name, method.Roles, want)
		}
	}
	for _, c := range callers {
		for _, r := range m.Wire.Routes() {
			name := fmt.Sprintf("%s %d", r.Proto, r.Group)
			want, ok := routesFor[name]
			if !ok || want != r.Roles {
				t.Errorf("%s is for %s; the table says %v", name, r.Roles, want)
			}
			if got, want := wiretest.Admitted(t, c.Open, addr, r), want&wire.Roles(c.Role) != 0; got != want {
				t.Errorf("%s at %s: let in %v, want %v", c.Name, name, got, want)
			}
		}
		if wire.Federation&wire.Roles(c.Role) == 0 {
			continue // its connection is refused
		}
		client := callerAs(t, c.Open, wire.ProtoRPC)
		for _, method := range methods {
			if got, want := outcome(t, client, addr, method), wanted[method.Name]&wire.Roles(c.Role) != 0; got != want {
				t.Errorf("%s calls %s: let in %v, want %v", c.Name, method.Name, got, want)
			}
		}
	}
}

func publicKey(t *testing.T, a *wiretest.Authority) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(a.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// TestRoleMatrix is C11 with TLS, where no names are checked when dialling, and with every part that registers
// something.
func TestRoleMatrix(t *testing.T) {
	t.Parallel()
	a, other := wiretest.NewAuthority(t), wiretest.NewAuthority(t)
	m := startServer(t, "matrix", fmt.Sprintf(`
bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = "11111111-1111-1111-1111-111111111111" } }
monitor { enabled = true, cluster_admin_username = "admin", cluster_admin_password = "correct-horse" }
ports { monitor = 0, monitor_agents = 0, serf_wan = 0 }
auto_encrypt { allow_tls = true }
auto_config { authorization { enabled = true, static { jwt_validation_pub_keys = [%q], bound_issuer = "ops", bound_audiences = ["consul"] } } }`, publicKey(t, a))+
		usageOn+a.RPCBlock(a.Issue(goodName, -time.Minute, time.Hour), "verify_server_hostname = false"))
	polltest.Until(t, func() bool { return len(m.monitor().Unready()) == 0 }, "the monitor plane to be ready")
	var domain string
	polltest.NoError(t, time.Minute, func() (err error) { domain, err = ca.TrustDomainOf(m.registry.State()); return err },
		"the mesh's authority")
	agent, remote, server := a.Issue("client.dc1.consul", -time.Minute, time.Hour),
		a.Issue("server.dc2.consul", -time.Minute, time.Hour), a.Issue(goodName, -time.Minute, time.Hour)
	foreign := other.Issue(goodName, -time.Minute, time.Hour)
	guest := meshCert(t, m, ca.ID{Kind: ca.AgentID, TrustDomain: domain, Datacenter: "dc1", Name: "c1"},
		time.Now().Add(-time.Minute))
	service := meshCert(t, m, ca.ID{Kind: ca.ServiceID, TrustDomain: domain, Datacenter: "dc1", Name: "web"},
		time.Now().Add(-time.Minute))
	callers := []wiretest.Caller{
		{Name: "a stranger, or a member of the gossip, without a certificate", Open: withCertificate(a, nil),
			Role: wire.Stranger},
		{Name: "an agent", Open: withCertificate(a, &agent), Role: wire.Agent},
		{Name: "a guest", Open: withCertificate(a, guest), Role: wire.Guest},
		{Name: "a server of another datacenter", Open: withCertificate(a, &remote), Role: wire.Remote},
		{Name: "a server", Open: withCertificate(a, &server), Role: wire.Server},
	}
	runMatrix(t, m, callers)
	runEnrolment(t, m, callers)
	runPeering(t, m, callers)
	for name, open := range map[string]wiretest.Opener{"a certificate of another authority": withCertificate(a, &foreign),
		"a service of the mesh": withCertificate(a, service)} {
		for _, r := range m.Wire.Routes() {
			if wiretest.Admitted(t, open, m.Wire.Addr().String(), r) {
				t.Errorf("%s: %s %d let it in", name, r.Proto, r.Group)
			}
		}
	}
	// No row without a registration: a table that says more than there is hides what went.
	seen := map[string]bool{}
	for _, method := range m.RPCSrv.Methods() {
		seen[method.Name] = true
	}
	for _, names := range methodsFor {
		for _, name := range names {
			if !seen[name] {
				t.Errorf("%s is in the table and nobody registered it", name)
			}
		}
	}
	if got := len(m.Wire.Routes()); got != len(routesFor) {
		t.Errorf("%d protocols of %d: %v", got, len(routesFor), slices.Sorted(maps.Keys(routesFor)))
	}
}

// subjectsFor is what a token needs to follow each kind of subject of the feed; "" is nothing but a connection, "all"
// more than what there is for one service.
var subjectsFor = map[mesh.SubjectKind]string{
	mesh.SubjectEndpoints: "read", mesh.SubjectUpstream: "read", mesh.SubjectInstances: "read",
	mesh.SubjectVirtual: "read",
	mesh.SubjectService: "write", mesh.SubjectRules: "write", mesh.SubjectRoots: "",
	mesh.SubjectPassages: "all",
}

// TestSubjectMatrix is C11 for the subjects of the feed: each kind is followed with the right that the table says,
// and not with less.
func TestSubjectMatrix(t *testing.T) {
	t.Parallel()
	const root = "11111111-1111-1111-1111-111111111111"
	m := startServer(t, "matrix", fmt.Sprintf(`
bootstrap = true
connect { enabled = true }
acl { enabled = true, default_policy = "deny", tokens { initial_management = %[1]q, agent = %[1]q } }`, root))
	polltest.Until(t, func() bool { _, err := m.access.tokens.Grant(t.Context(), root); return err == nil }, "the token")
	tokens := map[string]string{"": ""}
	for right, rules := range map[string]string{"read": `service "db" { policy = "read" }`,
		"write": `service "db" { policy = "write" }`, "all": `service_prefix "" { policy = "write" }`} {
		name, policy := right, acl.Policy{Name: right, Rules: rules}
		polltest.NoError(t, time.Minute, func() error {
			if _, err := m.keeper.SetPolicy(t.Context(), policy); err != nil &&
				!strings.Contains(err.Error(), "already") {
				return err
			}
			made, err := m.keeper.CreateToken(t.Context(),
				grants.TokenRequest{Token: acl.Token{Grants: acl.Grants{Policies: []acl.Link{{Name: name}}}}})
			if err == nil {
				tokens[right] = made.SecretID
			}
			return err
		}, "a token to %s", right)
	}
	level := map[string]int{"": 0, "read": 1, "write": 2, "all": 3}
	kinds := 0
	for kind := mesh.SubjectKind(1); ; kind++ {
		s := mesh.Subject{Kind: kind, Datacenter: "dc1", Service: "db"}
		if s.String() == "" {
			break
		}
		kinds++
		want, ok := subjectsFor[kind]
		if !ok {
			t.Errorf("%s has no row", s)
		}
		for right, token := range tokens {
			stop, err := m.feeds.Snapshots.Follow(feed.Identity{Node: "n1", Token: token}, s.String(), func(feed.Value) {},
				func(error) {})
			if err == nil {
				stop()
			}
			if may := level[right] >= level[want]; (err == nil) != may || !may && !errkind.Is(err, errkind.Denied) {
				t.Errorf("%s with the right %q: %v", s, right, err)
			}
		}
	}
	if kinds != len(subjectsFor) {
		t.Errorf("%d kinds of subjects, %d rows", kinds, len(subjectsFor))
	}
}

// TestRoleMatrixPlain is C11 on a plain loopback port: the user of a process decides.
func TestRoleMatrixPlain(t *testing.T) {
	t.Parallel()
	m := startServer(t, "matrix", monitorOn+usageOn+"bootstrap = true")
	polltest.Until(t, func() bool { return len(m.monitor().Unready()) == 0 }, "the monitor plane to be ready")
	callers := []wiretest.Caller{{Name: "a process of the same user", Open: asUser(os.Getuid()), Role: wire.Server}}
	if os.Getuid() == 0 {
		stranger := wiretest.Caller{Name: "a process of another user", Open: asUser(nobodyUID), Role: wire.Stranger}
		callers = append(callers, stranger)
	} else {
		t.Log("NOT RUN: a process of another user: that needs root")
	}
	runMatrix(t, m, callers)
}
