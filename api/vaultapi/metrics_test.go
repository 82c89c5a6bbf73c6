package vaultapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// TestOpenMetricsAreNoOpenDoctor: the doctor tells of clients and paths, and has a switch of its own.
func TestOpenMetricsAreNoOpenDoctor(t *testing.T) {
	k, err := keeper.New(keeper.Config{Storage: memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	for _, open := range []bool{false, true} {
		d := &door{t: t,
			srv: httptest.NewServer(New(Config{Keeper: k, Doctor: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", "no-store")
				fmt.Fprint(w, "{}")
			}),
				Listener: Listener{OpenDoctor: open, OpenMetrics: func(bool) (string, []byte, error) {
					return "application/json",
						[]byte("{}"), nil
				}}}))}
		t.Cleanup(d.srv.Close)
		for _, path := range []string{"sys/doctor", "sys/doctor/evidence", "sys/doctor/profile"} {
			if code, body := d.do("GET", path, "", "X-Forwarded-For", "10.0.0.9"); (code == 200) != open {
				t.Errorf("open %t: %s: %d %v", open, path, code, body)
			}
		}
	}
}

// Metrics are for everybody where the operator says so, and nothing else is.
func TestOpenMetrics(t *testing.T) {
	k, err := keeper.New(keeper.Config{Storage: memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{t: t,
		srv: httptest.NewServer(New(Config{Keeper: k,
			Listener: Listener{OpenMetrics: func(prometheus bool) (string, []byte, error) {
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
