package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"corbel.dev/corbel/test/fetch"
)

// peered are two clusters: east exports db and shop to west, whose web calls them. private is exported to nobody.
func peered(t *testing.T) (east, west *meshRig) {
	envoy := fetch.Need(t, "envoy")
	east, west = newMeshRig(t, envoy), newMeshRig(t, envoy)
	var made struct{ PeeringToken string }
	if err := json.Unmarshal([]byte(east.must("POST", "/v1/peering/token", `{"PeerName":"west"}`)), &made); err != nil {
		t.Fatal(err)
	}
	west.must("POST", "/v1/peering/establish", fmt.Sprintf(`{"PeerName":"east","PeeringToken":%q}`, made.PeeringToken))
	east.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"shop","Protocol":"http"}`)
	east.must("PUT", "/v1/config", `{"Kind":"exported-services","Name":"default","Services":[`+
		`{"Name":"db","Consumers":[{"Peer":"west"}]},{"Name":"shop","Consumers":[{"Peer":"west"}]}]}`)
	for id, port := range map[string]int{"db": echo(t), "private": echo(t), "shop": backend(t, "shop")} {
		east.service(id, id, "1", port, nil)
		east.proxy(id)
	}
	west.service("web", "web", "1", backend(t, "web"), map[string]int{"db@east": west.port("to db"),
		"shop@east": west.port("to shop"), "private@east": west.port("to private")})
	west.proxy("web")
	return east, west
}

// passed counts the connections that went through a gateway's clusters of a name.
func (r *meshRig) passed(gateway, cluster string) (n int) {
	for line := range strings.Lines(r.admin(gateway, "/stats?filter=upstream_cx_total")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.Contains(name, cluster) {
			one := 0
			_, _ = fmt.Sscan(value, &one)
			n += one
		}
	}
	return n
}

// TestMeshToAPeer: a sidecar reaches the services that a peer exports through the peer's mesh gateway, and through its
// own one where it is told so, also while roots are replaced; an intention of the peer's stops it, and so does the end
// of the peering.
func TestMeshToAPeer(t *testing.T) {
	east, west := peered(t)
	db, shop := west.port("to db"), west.port("to shop")
	if echoed(db) {
		t.Error("without a gateway of the peer there is no way to it")
	}
	east.gateway("mesh", "gate")
	west.await("a connection to a service of a peer", func() bool { return echoed(db) })
	west.await("a request to a service of a peer", func() bool {
		status, body := west.get(shop, "/")
		return status == http.StatusOK && body == "shop"
	})
	if !strings.Contains(east.listens("db"), "roots::peers") {
		t.Errorf("callers of the peer are not verified by its roots: %s", east.listens("db"))
	}
	if n := east.passed("gate", "db.default"); n == 0 {
		t.Error("nothing went through the peer's gateway")
	}
	if echoed(west.port("to private")) {
		t.Error("a service that is exported to nobody was reached")
	}

	west.transparentToPeer()

	// Each cluster gets another root, which the other one learns of before anybody misses it.
	stop := west.load(shop)
	east.rotate(map[string]string{"shop": east.serials("shop")})
	west.rotate(map[string]string{"web": west.serials("web")})
	if sent, failed := stop(); len(failed) > 0 || sent == 0 {
		t.Errorf("%d of %d requests failed while the roots changed: %s", len(failed), sent, failed[:min(3, len(failed))])
	}
	west.await("a new connection by the new roots", func() bool { return echoed(db) })

	east.must("PUT", "/v1/config", `{"Kind":"service-intentions","Name":"db","Sources":[`+
		`{"Name":"web","Peer":"west","Action":"deny"}]}`)
	east.await("the end by an intention", func() bool { return !echoed(db) })
	if status, _ := west.get(shop, "/"); status != http.StatusOK {
		t.Errorf("a service that the intention does not name: %d", status)
	}
	east.must("DELETE", "/v1/config/service-intentions/db", "")
	west.await("a connection after the intention is gone", func() bool { return echoed(db) })

	east.must("PUT", "/v1/agent/service/register", fmt.Sprintf(`{"Kind":"mesh-gateway","ID":"gate","Name":"gate",`+
		`"Address":"127.0.0.1","Port":%d,"TaggedAddresses":{"wan":{"Address":"localhost","Port":%[1]d}}}`,
		east.port("gate public")))
	west.await("a connection to a gateway with a name", func() bool {
		return strings.Contains(west.admin("web", "/config_dump?resource=dynamic_active_clusters"), "STRICT_DNS") &&
			echoed(db)
	})

	west.gateway("mesh", "gate")
	west.must("PUT", "/v1/config", `{"Kind":"proxy-defaults","Name":"global","MeshGateway":{"Mode":"local"}}`)
	west.await("a connection through its own gateway", func() bool {
		return echoed(db) && west.passed("gate", "east.external") > 0
	})

	west.must("DELETE", "/v1/peering/east", "")
	west.await("the end of the peering", func() bool {
		status, _ := west.get(shop, "/")
		return !echoed(db) && status != http.StatusOK
	})
	east.await("the peer to let nobody of it in", func() bool {
		now := east.listens("db")
		return strings.Contains(now, "public_listener") && !strings.Contains(now, "roots::peers")
	})
}

// transparentToPeer: redirected traffic reaches a service of a peer by its virtual address, which DNS tells. Nothing is
// redirected here: the address is changed to one that reaches the listener by itself.
func (r *meshRig) transparentToPeer() {
	r.Helper()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", fmt.Sprintf("127.0.0.1:%d", r.port("dns")))
	}}
	names := func(want string) {
		r.Helper()
		for _, name := range []string{"db.virtual.east.peer.consul.", "db.virtual.east.consul."} {
			r.await(name+" to be "+want, func() bool {
				list, err := resolver.LookupHost(context.Background(), name)
				return err == nil && len(list) == 1 && strings.HasPrefix(list[0], want)
			})
		}
	}
	names("2") // of 240.0.0.0/4
	r.must("PUT", "/v1/internal/service-virtual-ip", `{"Service":"db","Peer":"east","ManualVIPs":["127.0.0.1"]}`)
	names("127.0.0.1")
	r.must("PUT", "/v1/agent/service/register", fmt.Sprintf(`{"Name":"clear","Address":"127.0.0.1","Port":%d,`+
		`"Connect":{"SidecarService":{"Port":%d,"Checks":[{"Name":"alias","AliasService":"clear"}],"Proxy":{`+
		`"Mode":"transparent","TransparentProxy":{"OutboundListenerPort":%d},"Upstreams":[{"DestinationName":"db",`+
		`"DestinationPeer":"east"}]}}}}`, backend(r, "clear"), r.port("clear public"), r.port("redirected")))
	r.proxy("clear")
	r.await("a connection to the virtual address of a peer's service", func() bool { return echoed(r.port("redirected")) })
}

// listens is the listeners that a proxy takes new connections by, as Envoy tells them.
func (r *meshRig) listens(id string) string {
	var dump struct {
		Configs []struct {
			Active json.RawMessage `json:"active_state"`
		}
	}
	if err := json.Unmarshal([]byte(r.admin(id, "/config_dump?resource=dynamic_listeners")), &dump); err != nil {
		return ""
	}
	var all strings.Builder
	for _, c := range dump.Configs {
		all.Write(c.Active)
	}
	return all.String()
}
