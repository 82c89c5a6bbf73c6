package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/polltest"
)

// asPeer connects as a server of another cluster does: without a certificate, and saying so.
func asPeer(a *wiretest.Authority) wiretest.Opener {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		d := tls.Dialer{Config: &tls.Config{RootCAs: a.Pool(), ServerName: goodName,
			NextProtos: []string{"corbel-peering"}}}
		return d.DialContext(ctx, "tcp", addr)
	}
}

// TestPeeredClusters peers two clusters whose servers have certificates of different authorities, by their APIs, and
// asks for what one exports to the other in each way that there is.
func TestPeeredClusters(t *testing.T) {
	t.Parallel()
	one, two := wiretest.NewAuthority(t), wiretest.NewAuthority(t)
	a := startServer(t, "a1", aclOff+"bootstrap = true\n"+one.RPCBlock(one.Issue(goodName, -time.Minute, time.Hour), ""))
	b := startServer(t, "b1", aclOff+"bootstrap = true\ndatacenter = \"dc2\"\n"+
		two.RPCBlock(two.Issue("server.dc2.consul", -time.Minute, time.Hour), ""))
	for _, m := range []*testMember{a, b} {
		m.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	}
	admitted := func(proto wire.Protocol) bool {
		return wiretest.Admitted(t, asPeer(one), a.RPCAddr(), wire.Route{Proto: proto})
	}
	if admitted(wire.ProtoPeering) {
		t.Error("without a token a stranger may connect")
	}
	a.awaitAsk("GET", "/v1/peering/two", "", http.StatusNotFound, "not found")
	a.awaitAsk("GET", "/v1/peerings", "", http.StatusOK, "[]")
	a.awaitAsk("POST", "/v1/peering/token", "{}", http.StatusBadRequest, "PeerName is required")
	a.awaitAsk("POST", "/v1/peering/token", `{"PeerName":"Two"}`, http.StatusBadRequest, "not a valid PeerName")
	var made struct{ PeeringToken string }
	code, text := a.ask("POST", "/v1/peering/token", `{"PeerName":"two","Meta":{"k":"v"}}`)
	if err := json.Unmarshal([]byte(text), &made); code != http.StatusOK || err != nil {
		t.Fatal(code, text, err)
	}
	a.awaitAsk("GET", "/v1/peering/two", "", http.StatusOK, `"Meta":{"k":"v"},"State":"PENDING"`)
	if !admitted(wire.ProtoPeering) {
		t.Error("with a token a peer may not connect")
	}
	for _, proto := range []wire.Protocol{wire.ProtoRPC, wire.ProtoFeed, wire.ProtoRaft} {
		if admitted(proto) {
			t.Errorf("a peer may speak %s", proto)
		}
	}
	use := fmt.Sprintf(`{"PeerName":"one","PeeringToken":%q}`, made.PeeringToken)
	b.awaitAsk("POST", "/v1/peering/establish", `{"PeerName":"one"}`, http.StatusBadRequest, "PeeringToken is required")
	a.awaitAsk("POST", "/v1/peering/establish", use, http.StatusBadRequest, "within the same cluster")
	if code, text := b.ask("POST", "/v1/peering/establish", use); code != http.StatusOK || text != "{}" {
		t.Fatal(code, text)
	}
	b.awaitAsk("POST", "/v1/peering/establish", strings.Replace(use, "one", "again", 1), http.StatusBadRequest, "was used")
	a.awaitAsk("GET", "/v1/peering/two", "", http.StatusOK, `"State":"ACTIVE"`)
	b.awaitAsk("GET", "/v1/peerings", "", http.StatusOK, `"State":"ACTIVE"`)

	a.awaitAsk("PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","Service":{"Service":"web","Port":80,
		"Tags":["v1"]},"Check":{"CheckID":"service:web","ServiceID":"web","Status":"passing"}}`, http.StatusOK, "true")
	a.awaitAsk("PUT", "/v1/config", `{"Kind":"exported-services","Name":"default","Services":[{"Name":"web",
		"Consumers":[{"Peer":"two"}]}]}`, http.StatusOK, "true")
	b.awaitAsk("GET", "/v1/health/service/web?peer=one", "", http.StatusOK, `"PeerName":"one"`)
	b.awaitAsk("GET", "/v1/health/service/web?peer=one&passing", "", http.StatusOK, `"CheckID":"web:overall-check"`)
	b.awaitAsk("GET", "/v1/health/service/web", "", http.StatusOK, "[]")
	b.awaitAsk("GET", "/v1/catalog/service/web?peer=one", "", http.StatusOK, `"ServiceAddress"`)
	b.awaitAsk("GET", "/v1/catalog/nodes?peer=one", "", http.StatusOK, `"Node":"far"`)
	b.awaitAsk("GET", "/v1/catalog/services?peer=one", "", http.StatusOK, `{"web":["v1"]}`)
	b.awaitAsk("GET", "/v1/catalog/service/web?peer=nobody", "", http.StatusOK, "[]")
	b.awaitAsk("GET", "/v1/health/connect/web?peer=one", "", http.StatusOK, "[]")
	b.awaitAsk("GET", "/v1/health/node/far?peer=one", "", http.StatusBadRequest, "peer:")
	b.awaitAsk("GET", "/v1/peering/one", "", http.StatusOK, `"ImportedServices":["web"]`)
	a.awaitAsk("GET", "/v1/peering/two", "", http.StatusOK, `"ExportedServices":["web"]`)
	b.awaitAsk("POST", "/v1/query", `{"Name":"q","Service":{"Service":"web","Failover":{"Targets":[{"Peer":"one"}]}}}`,
		http.StatusOK, "ID")
	b.awaitAsk("GET", "/v1/query/q/execute", "", http.StatusOK, `"Failovers":1`)
	resolves(t, b, "web.service.one.peer.consul.", dns.TypeA, "10.9.0.1")
	resolves(t, b, "v1.web.service.one.peer.consul.", dns.TypeSRV, "far.node.one.peer.consul.")
	resolves(t, b, "far.node.one.peer.consul.", dns.TypeA, "10.9.0.1")
	resolves(t, b, "FAR.node.one.peer.consul.", dns.TypeAAAA, "SOA") // it is there, and has none
	resolves(t, b, "near.node.one.peer.consul.", dns.TypeA, "NXDOMAIN")
	resolves(t, b, "far.node.two.peer.consul.", dns.TypeA, "NXDOMAIN")

	// A blocking query wakes by a change at the other end.
	_, _, header := b.answer("GET", "/v1/health/service/web?peer=one", "")
	a.awaitAsk("PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","Check":{"CheckID":"service:web",
		"ServiceID":"web","Status":"critical"}}`, http.StatusOK, "true")
	b.awaitAsk("GET", "/v1/health/service/web?peer=one&wait=20s&index="+header.Get("X-Consul-Index"), "", http.StatusOK,
		`"Status":"critical"`)

	// What the peering was told is known after a restart, before the peer is heard again.
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	b.awaitAsk("GET", "/v1/health/service/web?peer=one", "", http.StatusOK, `"Status":"critical"`)
	b.awaitAsk("DELETE", "/v1/peering/one", "", http.StatusOK, "")
	b.awaitAsk("GET", "/v1/peering/one", "", http.StatusNotFound, "not found")
	b.awaitAsk("GET", "/v1/health/service/web?peer=one", "", http.StatusOK, "[]")
}

// resolves waits for the answer of a server to a question to hold a text.
func resolves(t *testing.T, m *testMember, name string, qtype uint16, want string) {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	polltest.NoError(t, time.Minute, func() error {
		got := new(dns.Msg)
		if err := got.Unpack(m.dns.Resolve(t.Context(), dnsapi.Asked{Query: b, Domain: "consul"})); err != nil {
			return err
		}
		if !strings.Contains(got.String(), want) {
			return errors.New(got.String())
		}
		return nil
	}, "%s to resolve", name)
}
