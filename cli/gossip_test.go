package cli

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestGossipCommands: events, keys and distances.
func TestGossipCommands(t *testing.T) {
	answers := map[string]string{
		"PUT /v1/event/fire/deploy": `{"ID":"e1"}`, "GET /v1/operator/keyring": `[{"WAN":true,"Datacenter":"dc1","Keys":{` +
			`"k=":1},"PrimaryKeys":{"k=":1},"NumNodes":1},{"Datacenter":"dc1","Keys":{"k=":2},"NumNodes":2}]`,
		"POST /v1/operator/keyring": "", "PUT /v1/operator/keyring": "", "DELETE /v1/operator/keyring": "",
		"GET /v1/coordinate/nodes": `[{"Node":"a","Coord":{"Vec":[0.003,0],"Height":0.0001}},{"Node":"b","Coord":{` +
			`"Vec":[0,0.004],"Height":0.0001,"Adjustment":0.0003}}]`,
		"GET /v1/coordinate/datacenters": `[{"Datacenter":"dc1","Coordinates":[{"Node":"a","Coord":{"Vec":[0.001],` +
			`"Height":0}}]},{"Datacenter":"dc2","Coordinates":[{"Node":"b.dc2","Coord":{"Vec":[0.002],"Height":0}}]}]`,
		"GET /v1/agent/self": `{"Config":{"NodeName":"b","Datacenter":"dc1"}}`,
	}
	speak(t, answers, []spoken{
		{args("event -name=deploy -node=web.* payload"), 0, "PUT /v1/event/fire/deploy?node=web.%2A payload",
			"Event ID: e1\n"},
		{args("event payload"), 1, "", "--name"},
		{args("event -name=x -tag=y"), 1, "", "--tag needs --service"},
		{args("keyring -list"), 0, "GET /v1/operator/keyring",
			"==> Gathering installed encryption keys...\n\nWAN:\n  k= [1/1]\n\ndc1 (LAN):\n  k= [2/2]\n"},
		{args("keyring -install=abc -relay-factor=2"), 0, `POST /v1/operator/keyring?relay-factor=2 {"Key":"abc"}`,
			"==> Installing new gossip encryption key...\n"},
		{args("keyring -use=abc"), 0, `PUT /v1/operator/keyring {"Key":"abc"}`, "==> Changing"},
		{args("keyring -remove=abc"), 0, `DELETE /v1/operator/keyring {"Key":"abc"}`, "==> Removing"},
		{args("keyring"), 1, "", "needs one of"},
		{args("rtt a b"), 0, "GET /v1/coordinate/nodes", "Estimated a <-> b rtt: 5.500 ms (using LAN coordinates)\n"},
		{args("rtt a"), 0, "GET /v1/coordinate/nodes", "Estimated a <-> b rtt"},
		{args("rtt -wan a.dc1 b.dc2"), 0, "", "rtt: 1.000 ms (using WAN coordinates)"},
		{args("rtt a none"), 1, "", `Could not find a coordinate for node "none"`},
		{args("exec uptime"), 1, "", "use ssh"},
	})
}

// TestTLSCommands: the authority's certificates verify, and no file is written over.
func TestTLSCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	speak(t, nil, []spoken{
		{args("tls cert create -server"), 1, "", "tls ca create"},
		{args("tls ca create"), 0, "", "==> Saved consul-agent-ca.pem\n==> Saved consul-agent-ca-key.pem\n"},
		{args("tls ca create"), 1, "", "is there already"},
		{args("tls cert create -server -node=s1 -additional-ipaddress=10.0.0.1"), 0, "",
			"==> Saved dc1-server-consul-0.pem\n==> Saved dc1-server-consul-0-key.pem\n"},
		{args("tls cert create -server"), 0, "", "==> Saved dc1-server-consul-1.pem"},
		{args("tls cert create -client -dc=dc2"), 0, "", "==> Saved dc2-client-consul-0.pem"},
		{args("tls cert create -cli"), 0, "", "==> Saved dc1-cli-consul-0.pem"},
		{args("tls cert create"), 1, "", "give one of"},
		{args("tls cert create -client -server"), 1, "", "exclude each other"},
	})
	read := func(path string) *x509.Certificate {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	roots := x509.NewCertPool()
	roots.AddCert(read("consul-agent-ca.pem"))
	for path, name := range map[string]string{"dc1-server-consul-0.pem": "s1.server.dc1.consul",
		"dc2-client-consul-0.pem": "client.dc2.consul"} {
		if _, err := read(path).Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := read("dc1-server-consul-0.pem").VerifyHostname("10.0.0.1"); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat("dc1-server-consul-0-key.pem"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v %v", info, err)
	}
}

// TestTroubleshoot judges a stand-in of Envoy's interface.
func TestTroubleshoot(t *testing.T) {
	answers := map[string]string{
		"GET /listeners": `{"listener_statuses":[{"name":"public_listener:0.0.0.0:21000"},{"name":"db:127.0.0.1:9191"}]}`,
		"GET /certs":     `{"certificates":[{"ca_cert":[{"expiration_time":"2999-01-01T00:00:00Z"}],"cert_chain":[]}]}`,
		"GET /stats":     `{"stats":[{"name":"cluster_manager.cds.update_rejected","value":0}]}`,
		"GET /clusters": `{"cluster_statuses":[{"name":"db.default.dc1.internal.x.consul","host_statuses":[{` +
			`"health_status":{"eds_health_status":"HEALTHY"}},{"health_status":{"eds_health_status":"UNHEALTHY"}}]}]}`,
	}
	s := httptest.NewServer(&recorder{answers: answers})
	defer s.Close()
	at := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := strings.Cut(at, ":")
	speak(t, nil, []spoken{
		{args("troubleshoot upstreams -envoy-admin-endpoint=" + at), 0, "", "   - db (127.0.0.1:9191)\n"},
		{args("troubleshoot proxy -upstream-envoy-id=db -envoy-admin-endpoint=" + at), 0, "",
			" ✓ 1 of 2 endpoints of cluster db.default.dc1.internal.x.consul are healthy\n"},
		{args("troubleshoot proxy -upstream-envoy-id=no -envoy-admin-endpoint=" + at), 1, "",
			" ! No cluster for the upstream no"},
		{args("troubleshoot proxy -upstream-envoy-id=db -envoy-admin-endpoint=127.0.0.1:1"), 1, "", "Envoy does not answer"},
		{args("troubleshoot ports -host=127.0.0.1 -ports=" + port + ",1"), 0, "", "TCP: Port " + port +
			" on 127.0.0.1 is open\nTCP: Port 1 on 127.0.0.1 is closed"},
	})
}
