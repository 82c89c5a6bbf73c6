package vaultapi

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// Metrics are for everybody where the operator says so, and nothing else is.
func TestOpenMetrics(t *testing.T) {
	k, err := keeper.New(keeper.Config{Storage: memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{t: t, srv: httptest.NewServer(New(Config{Keeper: k, Listener: Listener{OpenMetrics: func(prometheus bool) (string, []byte, error) {
		return "application/json", fmt.Appendf(nil, `{"prometheus":%t}`, prometheus), nil
	}}}))}
	t.Cleanup(d.srv.Close)
	for path, want := range map[string]bool{"sys/metrics": false, "sys/metrics?format=prometheus": true} {
		if code, body := d.do("GET", path, ""); code != 200 || body["prometheus"] != want {
			t.Errorf("%s: %d %v", path, code, body)
		}
	}
	for path, want := range map[string]int{"sys/metrics?format=x": 400, "sys/metrics/": 503, "sys/host-info": 503} {
		if code, body := d.do("GET", path, ""); code != want {
			t.Errorf("%s: %d %v", path, code, body)
		}
	}
	if code, _ := d.do("PUT", "sys/metrics", "{}"); code != 405 {
		t.Errorf("a write: %d", code)
	}
	if code, _ := openDoor(t).do("GET", "sys/metrics", "", "X-Vault-Token", ""); code != 403 {
		t.Errorf("without the setting: %d", code)
	}
}
