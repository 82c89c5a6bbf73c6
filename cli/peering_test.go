package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestConsulPeering: tokens, their use, and how peerings stand.
func TestConsulPeering(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("dG9r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const one = `{"ID":"i","Name":"east","State":"ACTIVE","Meta":{"k":"v"},"PeerID":"p",` +
		`"PeerServerAddresses":["10.0.0.1:8300"],"StreamStatus":{"ImportedServices":["web","db"],"ExportedServices":["api"]` +
		`,"LastReceive":"2026-01-02T12:00:00Z","Trouble":"connection refused"},"Remote":{"Datacenter":"dc1"}}`
	speak(t, map[string]string{
		"POST /v1/peering/token": `{"PeeringToken":"dG9r"}`, "POST /v1/peering/establish": "{}",
		"GET /v1/peering/east": one, "DELETE /v1/peering/east": "", "GET /v1/peerings": "[" + one + "]",
	}, []spoken{
		{args("peering generate-token -name west -meta k=v -server-external-addresses 192.0.2.1:8300,192.0.2.2:8300"), 0,
			`POST /v1/peering/token {"PeerName":"west","Meta":{"k":"v"},` +
				`"ServerExternalAddresses":["192.0.2.1:8300","192.0.2.2:8300"]}`, "dG9r\n"},
		{args("peering generate-token -name west -format json"), 0, `POST /v1/peering/token {"PeerName":"west"}`,
			`"PeeringToken": "dG9r"`},
		{args("peering establish -name east -peering-token dG9r"), 0,
			`POST /v1/peering/establish {"PeerName":"east","PeeringToken":"dG9r"}`,
			"Successfully established peering connection with east"},
		{args("peering establish -name east -peering-token @" + file), 0,
			`POST /v1/peering/establish {"PeerName":"east","PeeringToken":"dG9r"}`, "Successfully"},
		{args("peering list"), 0, "GET /v1/peerings", "east"},
		{args("peering read -name east"), 0, "GET /v1/peering/east", "web, db"},
		{args("peering read -name east"), 0, "GET /v1/peering/east", "connection refused"},
		{args("peering read -name east"), 0, "GET /v1/peering/east", "Last Receive"},
		{args("peering exported-services -name east"), 0, "GET /v1/peering/east", "api\n"},
		{args("peering delete -name east"), 0, "DELETE /v1/peering/east",
			"Successfully submitted peering connection, east, for deletion"},
		{args("peering read -name west"), 1, "GET /v1/peering/west", ""},
	})
}
