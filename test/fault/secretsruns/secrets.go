// Package secretsruns has the scenarios of the secrets plane: crashes, fencing, rolling upgrades, outages of its
// storage.
package secretsruns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
	faultrun "corbel.dev/corbel/test/fault"
)

// Secrets is A4 for the secrets plane: servers that share a storage are killed at random instants under writes, logins,
// wraps and revocations. They unseal by themselves.
type Secrets struct {
	// Storage is "raft" (the default), "file", or "postgresql": a real one, which is killed in turn with the servers.
	Storage string
	// Roles has an engine make roles in a real PostgreSQL; always with that storage.
	Roles   bool
	Servers int // 1, 2 or 3
	Cycles  int
	Freeze  bool // the active server is stopped and woken up in the place of each second kill
	Writers int  // 4
	Load    time.Duration
}

// SecretsReport is what a run did.
type SecretsReport struct {
	Cycles, Acked, Unknown, Revoked, Logins, Renewed, Unwrapped, Limited, Roles, Fenced int
	Powerless                                                                           int // power losses
	// that standbys answered, each as new as it said
	StandbyReads int
	Starts       []time.Duration // from the start, or the kill, until everything could be read
}

const secretsConf = `
standby_reads = true
storage %q {
  %s
}
listener "tcp" {
  address         = "127.0.0.1:%d"
  cluster_address = "127.0.0.1:%d"
  tls_disable     = true
}
seal "static" {
  current_key_id = "k"
  current_key    = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
}
`

// SecretsRun is one run.
type SecretsRun struct {
	cfg     Secrets
	dir     string // of all servers
	Servers []*faultrun.Server
	pg      *pgtest.Server // nil: none is needed
	Token   string
	binary  string // what servers are started with
	client  *http.Client
	report  SecretsReport
	secretsLedger
}

// RunSecrets runs the scenario.
func RunSecrets(ctx context.Context, l *faultrun.Lab, cfg Secrets, seed uint64) (*SecretsReport, error) {
	r, err := OpenSecrets(ctx, l, cfg)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	rng := rand.New(rand.NewPCG(seed, 0x5ec))
	for n := range r.cfg.Cycles {
		if err := r.cycle(ctx, rng, n); err != nil {
			return &r.report, r.Explain(fmt.Errorf("seed %d, cycle %d: %w", seed, n, err))
		}
		r.report.Cycles++
	}
	if err := r.noRoleLeft(ctx); err != nil {
		return &r.report, r.Explain(fmt.Errorf("seed %d: %w", seed, err))
	}
	return &r.report, nil
}

// OpenSecrets starts servers, the first one initialized.
func OpenSecrets(ctx context.Context, l *faultrun.Lab, cfg Secrets) (*SecretsRun, error) {
	cfg.Servers = l.Size(cfg.Servers)
	if cfg.Writers == 0 {
		cfg.Writers = 4
	}
	if cfg.Load == 0 {
		cfg.Load = 150 * time.Millisecond
	}
	if cfg.Storage == "" {
		cfg.Storage = "raft"
	}
	r := &SecretsRun{cfg: cfg, client: &http.Client{Timeout: 20 * time.Second,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	r.secretsLedger.reset()
	dir, err := os.MkdirTemp(l.Dir, "secrets-")
	if err != nil {
		return nil, err
	}
	r.dir = dir
	if cfg.Storage == "postgresql" || cfg.Roles {
		if r.pg, err = pgtest.New(); err != nil {
			return nil, err
		}
	}
	r.binary = l.Binary
	if err := r.found(ctx, dir); err != nil {
		err = r.Explain(err)
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends every process and removes what they left on disk: hundreds of runs fill one.
func (r *SecretsRun) Close() {
	for _, s := range r.Servers {
		s.Kill()
	}
	_ = os.RemoveAll(r.dir)
	if r.pg != nil {
		r.pg.Remove()
	}
	r.client.CloseIdleConnections()
}

func (r *SecretsRun) Explain(err error) error {
	for _, s := range r.Servers {
		err = fmt.Errorf("%w\n%s (%s):\n%s", err, s.Name, s.HTTP, s.Log())
	}
	return err
}

// storage is the keys of a server's storage.
func storage(r *SecretsRun, dir, name string) string {
	if r.cfg.Storage == "postgresql" {
		return fmt.Sprintf("connection_url = %q\n  ha_enabled = %t", r.pg.URL(""), r.cfg.Servers > 1)
	}
	if r.cfg.Storage == "file" {
		return fmt.Sprintf("path = %q", filepath.Join(dir, name))
	}
	keys := fmt.Sprintf("path = %q\n  node_id = %q", filepath.Join(dir, name), name)
	if len(r.Servers) > 0 {
		keys += fmt.Sprintf("\n  retry_join { leader_api_addr = %q }", "http://"+r.Servers[0].HTTP)
	}
	return keys
}

func (r *SecretsRun) found(ctx context.Context, dir string) error {
	ports, err := testport.Free(2 * r.cfg.Servers)
	if err != nil {
		return err
	}
	for i := range r.cfg.Servers {
		name := fmt.Sprintf("s%d", i)
		file := filepath.Join(dir, name+".hcl")
		text := fmt.Sprintf(secretsConf, r.cfg.Storage, storage(r, dir, name), ports[2*i], ports[2*i+1])
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		s := &faultrun.Server{Process: &spawn.Process{Name: name, Command: func() *exec.Cmd {
			return exec.Command(r.binary, "vault", "server", "-config", file)
		}}, Dir: dir, HTTP: fmt.Sprintf("127.0.0.1:%d", ports[2*i])}
		if r.cfg.Storage != "postgresql" {
			s.Powered = filepath.Join(dir, name)
		}
		r.Servers = append(r.Servers, s)
		if err := s.Start(); err != nil {
			return err
		}
		if i == 0 {
			if err := r.begin(ctx, s); err != nil {
				return err
			}
		}
	}
	return spawn.Until(ctx, 2*time.Minute, "all servers to take part", func() error {
		for _, s := range r.Servers {
			code, _, err := r.Do(ctx, s, "GET", "sys/health?standbyok=true", "", nil)
			if err != nil || code != http.StatusOK {
				return fmt.Errorf("%s has status %d, %w", s.Name, code, err)
			}
		}
		if r.cfg.Storage != "raft" {
			return nil
		}
		code, body, err := r.Do(ctx, r.Servers[0], "GET", "sys/storage/raft/configuration", r.Token, nil)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("status %d, %w", code, err)
		}
		if n := bytes.Count(body, []byte(`"voter":true`)); n != r.cfg.Servers {
			return fmt.Errorf("%d of %d vote", n, r.cfg.Servers)
		}
		return nil
	})
}

// begin initializes the first server and makes what the load needs.
func (r *SecretsRun) begin(ctx context.Context, s *faultrun.Server) error {
	var made struct {
		RootToken string `json:"root_token"`
	}
	if err := spawn.Until(ctx, time.Minute, "the first server to be initialized", func() error {
		code, body, err := r.Do(ctx, s, "PUT", "sys/init", "", map[string]any{"recovery_shares": 1, "recovery_threshold": 1})
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("status %d, %s, %w", code, body, err)
		}
		return json.Unmarshal(body, &made)
	}); err != nil {
		return err
	}
	r.Token = made.RootToken
	type step struct {
		path string
		body map[string]any
	}
	steps := []step{
		{"sys/mounts/secret", map[string]any{"type": "kv"}},
		{"sys/auth/approle", map[string]any{"type": "approle"}},
		{"auth/approle/role/app", map[string]any{"bind_secret_id": false, "secret_id_bound_cidrs": "127.0.0.0/8",
			"token_ttl": "24h"}},
		{"auth/approle/role/app/role-id", map[string]any{"role_id": secretsRoleID}},
	}
	if r.cfg.Storage == "raft" {
		steps = append(steps, step{"sys/storage/raft/autopilot/configuration",
			map[string]any{"server_stabilization_time": "1s"}})
	}
	if r.pg != nil {
		steps = append(steps, step{"sys/mounts/database", map[string]any{"type": "database"}},
			step{"database/config/pg", map[string]any{"plugin_name": "postgresql-database-plugin",
				"connection_url": r.pg.URL(""), "allowed_roles": "*"}},
			step{"database/roles/app", map[string]any{"db_name": "pg",
				"creation_statements": `CREATE ROLE "{{name}}" WITH LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}'`}})
	}
	for _, st := range steps {
		if err := r.must(ctx, "POST", st.path, st.body); err != nil {
			return err
		}
	}
	return nil
}

// Do sends one request to one server. A header is a name and its value.
func (r *SecretsRun) Do(ctx context.Context, s *faultrun.Server, method, path, token string, in any,
	header ...string) (int,
	[]byte, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return 0, nil, err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.HTTP+"/v1/"+path, body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-Vault-Token", token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	return resp.StatusCode, out, err
}

// must sends a request until some server has done it.
func (r *SecretsRun) must(ctx context.Context, method, path string, in any) error {
	return spawn.Until(ctx, time.Minute, method+" "+path, func() error {
		var last error
		for _, s := range r.Servers {
			code, body, err := r.Do(ctx, s, method, path, r.Token, in)
			if err == nil && code < 300 {
				return nil
			}
			last = fmt.Errorf("status %d, %s, %w", code, body, err)
		}
		return last
	})
}

// cycle loads, kills or stops one in the middle, and compares what is there with what was acknowledged.
func (r *SecretsRun) cycle(ctx context.Context, rng *rand.Rand, n int) error {
	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	for w := range r.cfg.Writers {
		writers.Go(func() { r.write(writing, n, w, rand.New(rand.NewPCG(uint64(n), uint64(w)))) })
	}
	end := func() { stop(); writers.Wait() }
	defer end()
	if err := spawn.Sleep(ctx, r.cfg.Load/2+time.Duration(rng.Int64N(int64(r.cfg.Load)))); err != nil {
		return err
	}
	began := time.Now()
	var err error
	victim := rng.IntN(len(r.Servers) + 1)
	switch {
	case r.cfg.Freeze && n%2 == 1:
		err = r.sleeper(ctx, n, end)
	case r.cfg.Storage == "postgresql" && victim == len(r.Servers):
		r.pg.Stop(syscall.SIGKILL)
		end()
		began, err = time.Now(), r.pg.Start()
	default:
		s := r.Servers[victim%len(r.Servers)]
		if err := s.Crash(rng, &r.report.Powerless); err != nil {
			return err
		}
		// A lock in PostgreSQL outlives its holder for 15 s: who comes back has it at once, others wait.
		if len(r.Servers) > 1 && r.cfg.Storage == "raft" {
			err = r.progress(ctx, s)
		}
		end()
		began = time.Now()
		err = errors.Join(err, s.Start())
	}
	if err != nil {
		return err
	}
	if err := r.compare(ctx); err != nil {
		return err
	}
	r.report.Starts = append(r.report.Starts, time.Since(began))
	return nil
}

// Active is the server that answers for itself.
func (r *SecretsRun) Active(ctx context.Context) (*faultrun.Server, error) {
	var found *faultrun.Server
	err := spawn.Until(ctx, time.Minute, "an active server", func() error {
		for _, s := range r.Servers {
			if code, _, err := r.Do(ctx, s, "GET", "sys/health", "", nil); err == nil && code == http.StatusOK {
				found = s
				return nil
			}
		}
		return errors.New("no server is active")
	})
	return found, err
}

// progress waits until those that are left acknowledge a write.
func (r *SecretsRun) progress(ctx context.Context, victim *faultrun.Server) error {
	return spawn.Until(ctx, time.Minute, "the other servers to take writes", func() error {
		last := errors.New("no other server")
		for _, s := range r.Servers {
			if s == victim {
				continue
			}
			try, cancel := context.WithTimeout(ctx, 3*time.Second)
			code, body, err := r.Do(try, s, "PUT", "secret/progress", r.Token, map[string]any{"x": "y"})
			cancel()
			if err == nil && code < 300 {
				return nil
			}
			last = fmt.Errorf("status %d, %s, %w", code, body, err)
		}
		return last
	})
}
