package faultrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"corbel.dev/corbel/kit/testport"
)

// Secrets is A4 for the secrets plane: servers that share a Raft group are killed at random instants under writes of
// secrets and revocations of tokens. They unseal by themselves.
type Secrets struct {
	Servers int // 1 or 3
	Cycles  int
	Freeze  bool // the active server is stopped and woken up in the place of each second kill
	Writers int  // 4
	Load    time.Duration
}

// SecretsReport is what a run did.
type SecretsReport struct {
	Cycles, Acked, Unknown, Revoked int
	Starts                          []time.Duration // from the start, or the kill, until everything could be read
}

const secretsConf = `
storage "raft" {
  path    = %q
  node_id = %q
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

// secretsRun is one run.
type secretsRun struct {
	cfg     Secrets
	servers []*Server
	token   string
	client  *http.Client
	report  SecretsReport

	mu      sync.Mutex
	acked   map[string]int // the greatest number that was acknowledged, by key
	sent    map[string]int // the greatest that was sent
	revoked []string       // tokens whose end was acknowledged
}

// RunSecrets runs the scenario.
func (l *Lab) RunSecrets(ctx context.Context, cfg Secrets, seed uint64) (*SecretsReport, error) {
	if cfg.Writers == 0 {
		cfg.Writers = 4
	}
	if cfg.Load == 0 {
		cfg.Load = 150 * time.Millisecond
	}
	dir, err := os.MkdirTemp(l.Dir, "secrets-")
	if err != nil {
		return nil, err
	}
	r := &secretsRun{cfg: cfg, client: &http.Client{Timeout: 20 * time.Second}, acked: map[string]int{}, sent: map[string]int{}}
	defer func() {
		for _, s := range r.servers {
			s.Kill()
		}
	}()
	if err := r.found(ctx, l.Binary, dir); err != nil {
		return nil, r.explain(err)
	}
	rng := rand.New(rand.NewPCG(seed, 0x5ec))
	for n := range cfg.Cycles {
		if err := r.cycle(ctx, rng, n); err != nil {
			return &r.report, r.explain(fmt.Errorf("seed %d, cycle %d: %w", seed, n, err))
		}
		r.report.Cycles++
	}
	for _, s := range r.servers {
		s.Kill()
	}
	return &r.report, os.RemoveAll(dir)
}

func (r *secretsRun) explain(err error) error {
	for _, s := range r.servers {
		err = fmt.Errorf("%w\n%s (%s):\n%s", err, s.Name, s.HTTP, s.Log())
	}
	return err
}

func (r *secretsRun) found(ctx context.Context, binary, dir string) error {
	ports, err := testport.Free(2 * r.cfg.Servers)
	if err != nil {
		return err
	}
	for i := range r.cfg.Servers {
		name, join := fmt.Sprintf("s%d", i), ""
		if i > 0 {
			join = fmt.Sprintf("retry_join { leader_api_addr = %q }", "http://"+r.servers[0].HTTP)
		}
		file := filepath.Join(dir, name+".hcl")
		text := fmt.Sprintf(secretsConf, filepath.Join(dir, name), name, join, ports[2*i], ports[2*i+1])
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		s := &Server{Name: name, Dir: dir, HTTP: fmt.Sprintf("127.0.0.1:%d", ports[2*i]), output: &tail{},
			command: func() *exec.Cmd { return exec.Command(binary, "vault", "server", "-config", file) }}
		r.servers = append(r.servers, s)
		if err := s.Start(); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		var made struct {
			RootToken string `json:"root_token"`
		}
		if err := until(ctx, time.Minute, "the first server to be initialized", func() error {
			code, body, err := r.do(ctx, s, "PUT", "sys/init", "", map[string]any{"recovery_shares": 1, "recovery_threshold": 1})
			if err != nil || code != http.StatusOK {
				return fmt.Errorf("status %d, %w", code, err)
			}
			return json.Unmarshal(body, &made)
		}); err != nil {
			return err
		}
		r.token = made.RootToken
		if err := r.must(ctx, "POST", "sys/mounts/secret", map[string]any{"type": "kv"}); err != nil {
			return err
		}
		if err := r.must(ctx, "POST", "sys/storage/raft/autopilot/configuration", map[string]any{"server_stabilization_time": "1s"}); err != nil {
			return err
		}
	}
	return until(ctx, 2*time.Minute, "all servers to vote", func() error {
		code, body, err := r.do(ctx, r.servers[0], "GET", "sys/storage/raft/configuration", r.token, nil)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("status %d, %w", code, err)
		}
		if n := bytes.Count(body, []byte(`"voter":true`)); n != r.cfg.Servers {
			return fmt.Errorf("%d of %d vote", n, r.cfg.Servers)
		}
		return nil
	})
}

// do sends one request to one server.
func (r *secretsRun) do(ctx context.Context, s *Server, method, path, token string, in any) (int, []byte, error) {
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
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	return resp.StatusCode, out, err
}

// must sends a request until some server has done it.
func (r *secretsRun) must(ctx context.Context, method, path string, in any) error {
	return until(ctx, time.Minute, method+" "+path, func() error {
		var last error
		for _, s := range r.servers {
			code, body, err := r.do(ctx, s, method, path, r.token, in)
			if err == nil && code < 300 {
				return nil
			}
			last = fmt.Errorf("status %d, %s, %w", code, body, err)
		}
		return last
	})
}

// cycle writes, kills or stops a server in the middle, and compares what is there with what was acknowledged.
func (r *secretsRun) cycle(ctx context.Context, rng *rand.Rand, n int) error {
	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	for w := range r.cfg.Writers {
		writers.Go(func() { r.write(writing, n, w, rand.New(rand.NewPCG(uint64(n), uint64(w)))) })
	}
	err := wait(ctx, r.cfg.Load/2+time.Duration(rng.Int64N(int64(r.cfg.Load))))
	victim := r.servers[rng.IntN(len(r.servers))]
	freeze := r.cfg.Freeze && n%2 == 1
	if freeze {
		victim = r.active(ctx, victim)
		err = errors.Join(err, victim.Freeze())
	} else {
		victim.Kill()
	}
	began := time.Now()
	if len(r.servers) > 1 {
		err = errors.Join(err, r.progress(ctx, victim, freeze))
	}
	stop()
	writers.Wait()
	if freeze {
		err = errors.Join(err, victim.Thaw())
	} else {
		began = time.Now()
		err = errors.Join(err, victim.Start())
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

// active is the server that answers for itself, or another where none does.
func (r *secretsRun) active(ctx context.Context, other *Server) *Server {
	for _, s := range r.servers {
		if code, _, err := r.do(ctx, s, "GET", "sys/health", "", nil); err == nil && code == http.StatusOK {
			return s
		}
	}
	return other
}

// progress waits until those that are left acknowledge a write.
func (r *secretsRun) progress(ctx context.Context, victim *Server, freeze bool) error {
	return until(ctx, time.Minute, "the other servers to take writes", func() error {
		last := errors.New("no other server")
		for _, s := range r.servers {
			if s == victim {
				continue
			}
			try, cancel := context.WithTimeout(ctx, 3*time.Second)
			code, body, err := r.do(try, s, "PUT", "secret/progress", r.token, map[string]any{"frozen": freeze})
			cancel()
			if err == nil && code < 300 {
				return nil
			}
			last = fmt.Errorf("status %d, %s, %w", code, body, err)
		}
		return last
	})
}

// write writes growing numbers under keys of its own, and now and then makes and ends a token. After an outcome that is
// not known a key is written no more: what was sent may still be done, on top of whatever came later.
func (r *secretsRun) write(ctx context.Context, cycle, w int, rng *rand.Rand) {
	lost := 0
	for ctx.Err() == nil {
		s := r.servers[rng.IntN(len(r.servers))]
		if rng.IntN(20) == 0 {
			r.endToken(ctx, s)
			continue
		}
		key := fmt.Sprintf("w%d/k%d-%d-%d", w, rng.IntN(4), cycle, lost)
		r.mu.Lock()
		r.sent[key]++
		n := r.sent[key]
		r.mu.Unlock()
		code, _, err := r.do(ctx, s, "PUT", "secret/"+key, r.token, map[string]any{"n": n})
		r.mu.Lock()
		var op *net.OpError
		switch {
		case err == nil && code < 300:
			r.acked[key] = n
			r.report.Acked++
		case errors.As(err, &op) && op.Op == "dial": // nothing was sent
			r.sent[key]--
		default:
			r.report.Unknown++
			lost++
		}
		r.mu.Unlock()
		if err != nil || code >= 300 {
			_ = wait(ctx, 5*time.Millisecond)
		}
	}
}

func (r *secretsRun) endToken(ctx context.Context, s *Server) {
	code, body, err := r.do(ctx, s, "POST", "auth/token/create", r.token, map[string]any{"policies": []string{"default"}})
	var made struct {
		Auth struct {
			Token string `json:"client_token"`
		} `json:"auth"`
	}
	if err != nil || code != http.StatusOK || json.Unmarshal(body, &made) != nil {
		return
	}
	code, _, err = r.do(ctx, s, "POST", "auth/token/revoke", r.token, map[string]any{"token": made.Auth.Token})
	if err == nil && code < 300 {
		r.mu.Lock()
		r.revoked = append(r.revoked, made.Auth.Token)
		r.report.Revoked++
		r.mu.Unlock()
	}
}

// compare reads everything back, from the server that answers: nothing that was acknowledged is lost, no value came from
// nowhere, no token that was ended opens anything.
func (r *secretsRun) compare(ctx context.Context) error {
	for key, sent := range r.sent {
		var n int
		found := false
		if err := until(ctx, time.Minute, "a read of "+key, func() error {
			s := r.servers[0]
			code, body, err := r.do(ctx, s, "GET", "secret/"+key, r.token, nil)
			if err != nil || (code != http.StatusOK && code != http.StatusNotFound) {
				return fmt.Errorf("status %d, %s, %w", code, body, err)
			}
			var got struct {
				Data struct {
					N int `json:"n"`
				} `json:"data"`
			}
			found = code == http.StatusOK
			err = json.Unmarshal(body, &got)
			n = got.Data.N
			return err
		}); err != nil {
			return err
		}
		if n < r.acked[key] || n > sent || !found && r.acked[key] > 0 {
			return fmt.Errorf("%s is %d: %d was acknowledged, %d was sent last", key, n, r.acked[key], sent)
		}
	}
	clear(r.sent) // each cycle has keys of its own
	clear(r.acked)
	for _, token := range r.revoked {
		code, _, err := r.do(ctx, r.servers[0], "GET", "auth/token/lookup-self", token, nil)
		if err != nil {
			return err
		}
		if code != http.StatusForbidden {
			return fmt.Errorf("a token that was revoked gets status %d", code)
		}
	}
	r.revoked = nil
	return nil
}
