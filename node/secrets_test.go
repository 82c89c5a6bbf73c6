package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/config"
)

// TestDevSecrets starts dev and uses its secrets plane as a client of Vault does.
func TestDevSecrets(t *testing.T) {
	ports, err := testport.Free(4)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("log_level = \"ERROR\"\nports { http = %d, serf_lan = %d, server = %d, secrets = %d, serf_wan "+
		"= -1, dns = -1, grpc = -1 }", ports[0], ports[1], ports[2], ports[3])
	cfg, err := config.Load(config.Options{Dev: true, Style: config.Corbel, Fragments: []string{text}, Hostname: "test"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	base := "http://" + p.SecretsAddr().String() + "/v1/"
	ask := func(method, path, token, body string) (int, map[string]any) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Vault-Token", token)
		resp, err := http.DefaultClient.Do(req) // the port is open since New: the request waits for Run
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var out map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			t.Fatalf("%s %s: %d, %v", method, path, resp.StatusCode, err)
		}
		return resp.StatusCode, out
	}
	if code, body := ask("GET", "sys/seal-status", "", ""); code != 200 || body["sealed"] != false {
		t.Errorf("seal-status: %d %v", code, body)
	}
	if code, body := ask("POST", "secret/data/app", "root", `{"data":{"password":"x"}}`); code != 200 {
		t.Errorf("write: %d %v", code, body)
	}
	code, body := ask("GET", "secret/data/app", "root", "")
	data, _ := body["data"].(map[string]any)
	if inner, _ := data["data"].(map[string]any); code != 200 || inner["password"] != "x" {
		t.Errorf("read: %d %v", code, body)
	}
	code, body = ask("GET", "sys/metrics", "root", "")
	if gauges := fmt.Sprint(body["Gauges"]); code != 200 || !strings.Contains(gauges, "Name:vault.core.unsealed Value:1") {
		t.Errorf("metrics: %d %v", code, body)
	}
	if code, body := ask("GET", "secret/data/app", "", ""); code != 403 {
		t.Errorf("read without a token: %d %v", code, body)
	}
}
