package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"corbel.dev/corbel/test/fetch"
)

// TestPeeringThroughGateways: with PeerThroughMeshGateways a token leads to the mesh gateways of the cluster that made
// it, which pass the other cluster on to the servers; the servers' own port is told to nobody.
func TestPeeringThroughGateways(t *testing.T) {
	envoy := fetch.Need(t, "envoy")
	dir := t.TempDir()
	certFile, keyFile, _, _ := pair(t, dir, "server", "server.dc1.consul")
	east, west := newMeshRig(t, envoy, fmt.Sprintf("tls { internal_rpc { ca_file = %q, cert_file = %q, key_file = %q } }",
		certFile, certFile, keyFile)), newMeshRig(t, envoy)
	east.must("PUT", "/v1/config", `{"Kind":"mesh","Peering":{"PeerThroughMeshGateways":true}}`)
	if status, text := east.ask("POST", "/v1/peering/token", `{"PeerName":"west"}`); status != http.StatusBadRequest ||
		!strings.Contains(text, "no mesh gateway is registered") {
		t.Errorf("without a gateway: %d %s", status, text)
	}
	east.gateway("mesh", "gate")
	var made struct{ PeeringToken string }
	east.await("a token that leads to the gateway", func() bool {
		status, text := east.ask("POST", "/v1/peering/token", `{"PeerName":"west"}`)
		if status != http.StatusOK || json.Unmarshal([]byte(text), &made) != nil {
			return false
		}
		token, err := base64.StdEncoding.DecodeString(made.PeeringToken)
		return err == nil && strings.Contains(string(token), fmt.Sprintf("127.0.0.1:%d", east.port("gate public"))) &&
			!strings.Contains(string(token), fmt.Sprintf(":%d\"", east.port("rpc")))
	})
	west.await("the gateway to lead to the servers", func() bool {
		status, _ := west.ask("POST", "/v1/peering/establish", fmt.Sprintf(`{"PeerName":"east","PeeringToken":%q}`,
			made.PeeringToken))
		return status == http.StatusOK
	})
	for name, r := range map[string]*meshRig{"west": east, "east": west} {
		r.await("an active peering with "+name, func() bool {
			return strings.Contains(r.must("GET", "/v1/peering/"+name, ""), `"ACTIVE"`)
		})
	}
	if n := east.passed("gate", "server.dc1.peering"); n == 0 {
		t.Error("nothing went through the gateway")
	}
	east.must("PUT", "/v1/config", `{"Kind":"exported-services","Name":"default","Services":[{"Name":"db",`+
		`"Consumers":[{"Peer":"west"}]}]}`)
	east.service("db", "db", "1", echo(t), nil)
	west.await("a service that comes through the gateway", func() bool {
		return strings.Contains(west.must("GET", "/v1/health/service/db?peer=east", ""), `"db"`)
	})
	east.proxy("db")
	east.synced(2)

	west.must("PUT", "/v1/config", `{"Kind":"mesh","Peering":{"PeerThroughMeshGateways":true}}`)
	if status, text := west.ask("POST", "/v1/peering/token", `{"PeerName":"north"}`); status != http.StatusBadRequest ||
		!strings.Contains(text, "set tls.internal_rpc") {
		t.Errorf("without TLS: %d %s", status, text)
	}
}
