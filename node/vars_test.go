package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/plane"
	jobsplane "corbel.dev/corbel/node/planes/jobs"
)

// sealedOn is a secrets plane of a server that unseals itself once it is initialized.
const sealedOn = `
secrets {
  storage "file" { path = %q }
  listener "tcp" {
    address     = "127.0.0.1:%d"
    tls_disable = true
  }
  seal "static" {
    current_key_id = "k1"
    current_key    = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
  }
  disable_mlock = true
}
`

// vault asks a secrets plane.
func vault(t *testing.T, port int, method, path, token, body string) (map[string]any, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d/v1/%s", port, path),
		strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Vault-Token", token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out map[string]any
	if resp.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			return nil, err
		}
	}
	if resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %d %v", method, path, resp.StatusCode, out)
	}
	return out, err
}

// holds reports which files below a folder have a text in them.
func holds(t *testing.T, dir, text string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was replaced
		}
		if bytes.Contains(data, []byte(text)) {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestVariablesAreSealed: without keys nothing is stored and the answer says what to do; what is stored stands in the
// clear nowhere, and outlives the process; sealing takes it away at once.
func TestVariablesAreSealed(t *testing.T) {
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hcl := fmt.Sprintf(jobsOn, false) + "bootstrap_expect = 1\n" +
		fmt.Sprintf(sealedOn, filepath.Join(dir, "secrets"), ports[0])
	m := startServer(t, "v1", hcl)
	const put = `{"Items":{"password":"canary-27182818"}}`
	polltest.NoError(t, time.Minute, func() error {
		_, err := m.nomad("PUT", "/v1/var/nomad/jobs/web", put)
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "unseal it") {
			return fmt.Errorf("without keys: %w", err)
		}
		return nil
	}, "the answer of a plane without keys")
	first, err := vault(t, ports[0], "PUT", "sys/init", "", `{"recovery_shares":1,"recovery_threshold":1}`)
	if err != nil {
		t.Fatal(err)
	}
	polltest.NoError(t, time.Minute, func() error {
		_, err := m.nomad("PUT", "/v1/var/nomad/jobs/web?cas=0", put)
		return err
	}, "a variable to be stored")
	if _, err := m.nomad("PUT", "/v1/var/nomad/jobs/web?cas=0", put); err == nil ||
		!strings.Contains(err.Error(), "409") ||
		!strings.Contains(err.Error(), "canary") {
		t.Errorf("a conflict: %v", err)
	}
	read := func() error {
		text, err := m.nomad("GET", "/v1/var/nomad/jobs/web", "")
		if err == nil && !strings.Contains(text, `"password":"canary-27182818"`) {
			err = errors.New(text)
		}
		return err
	}
	if err := read(); err != nil {
		t.Error(err)
	}
	kids := func() (list []string) {
		text, err := m.nomad("GET", "/.well-known/jwks.json", "")
		var set struct{ Keys []struct{ Kid string } }
		if err == nil {
			err = json.Unmarshal([]byte(text), &set)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range set.Keys {
			list = append(list, k.Kid)
		}
		return list
	}
	one := kids()
	if _, err := m.nomad("PUT", "/v1/operator/keyring/rotate", ""); err != nil {
		t.Error(err)
	}
	two := kids()
	if len(one) != 1 || len(two) != 2 || two[1] != one[0] {
		t.Errorf("keys before and after a rotation: %s, %s", one, two)
	}
	for _, g := range m.doors.Groups() {
		if err := g.Raft.Load().SnapshotNow(t.Context()); err != nil {
			t.Errorf("snapshot: %v", err)
		}
	}
	root, _ := first["root_token"].(string)
	if _, err := vault(t, ports[0], "PUT", "sys/seal", root, ""); err != nil {
		t.Fatal(err)
	}
	if err := read(); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a sealed plane reads: %v", err)
	}
	if text, err := m.nomad("GET", "/v1/vars", ""); err != nil || strings.Contains(text, "canary-27182818") {
		t.Errorf("the list: %s %v", text, err)
	}
	text, err := m.nomad("PUT", "/v1/operator/keyring/rotate", "")
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a sealed plane makes keys: %s %v", text, err)
	}
	m.again(hcl)
	polltest.NoError(t, time.Minute, read, "the variable after a restart")
	if now := kids(); !slices.Equal(now, two) {
		t.Errorf("keys after a restart: %s, not %s", now, two)
	}
	v := plane.Find[*jobsplane.Plane](m.doors.Planes)
	if text := v.StoredKeys(); !strings.Contains(text, `"Sealed":"`) || strings.Contains(text, `"Private":"`) {
		t.Errorf("the keys as they are stored: %s", text)
	}
	for _, folder := range []string{dir, m.Cfg.DataDir} {
		if list := holds(t, folder, "canary-27182818"); list != nil {
			t.Errorf("in the clear: %s", list)
		}
	}
	if len(holds(t, m.Cfg.DataDir, "nomad/jobs/web")) == 0 {
		t.Error("the variable's name stands in no file: what was looked at?")
	}
}

// TestTokenTroubleDelaysOneTask: a secrets plane that never answers holds the tasks that need a token of it, and says
// so; what needs none is placed and runs, on the same host too (NN-16).
func TestTokenTroubleDelaysOneTask(t *testing.T) {
	asked := make(chan struct{}, 1)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hangs.Close()
	defer hangs.CloseClientConnections()
	hcl := strings.Replace(fmt.Sprintf(jobsOn, true), "mock_driver = true",
		fmt.Sprintf("mock_driver = true, secrets_address = %q", hangs.URL), 1)
	m := startServer(t, "h1", hcl+"bootstrap_expect = 1\n")
	polltest.NoError(t, time.Minute, func() error {
		_, err := m.nomad("PUT", "/v1/jobs", strings.Replace(mockJob("needs", 20), `"Driver"`, `"Vault":{},"Driver"`, 1))
		return err
	}, "a job that needs tokens")
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("no task asked for a token")
	}
	for i := range 5 {
		id := fmt.Sprint("free", i)
		if _, err := m.nomad("PUT", "/v1/jobs", mockJob(id, 3)); err != nil {
			t.Fatal(err)
		}
		m.awaitRunning(id, 3)
	}
	text, err := m.nomad("GET", "/v1/job/needs/summary", "")
	if err != nil || !strings.Contains(text, `"Starting":20`) {
		t.Errorf("the job that needs tokens: %s %v", text, err)
	}
}
