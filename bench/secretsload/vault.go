// Package secretsload loads the secrets plane on each of its storages: secrets, tokens, logins and storms of
// revocations.
package secretsload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/postgres"
	"corbel.dev/corbel/kit/testport"
)

// SecretsOptions are what the benches of the secrets plane share beside Options.
type SecretsOptions struct {
	bench.Options
	// Backend is the storage of started servers: one of SecretsBackends.
	Backend string
}

// SecretsBackends are the storages that the benches can start servers on.
var SecretsBackends = []string{"raft", "file", "postgresql", "consul", "s3", "gcs", "inmem"}

// buckets are the variables that name an empty bucket for the storages that need one.
var buckets = map[string]string{"s3": "AWS_S3_BUCKET", "gcs": "GOOGLE_STORAGE_BUCKET"}

// lacks says what a started server on the storage needs and does not have, "" where that is nothing.
func (o *SecretsOptions) lacks() string {
	if name := buckets[o.Backend]; name != "" && o.Target == "" && os.Getenv(name) == "" {
		return fmt.Sprintf("an empty bucket that %s names", name)
	}
	return ""
}

func (o *SecretsOptions) Complete() error {
	if o.Backend == "" {
		o.Backend = "raft"
	}
	if !slices.Contains(SecretsBackends, o.Backend) {
		return fmt.Errorf("--backend: must be one of %s, not %q", strings.Join(SecretsBackends, ", "), o.Backend)
	}
	o.Target = strings.TrimSuffix(strings.TrimPrefix(o.Target, "http://"), "/")
	if strings.HasPrefix(o.Target, "https://") {
		return errors.New("--target: the load generator speaks plain HTTP, not HTTPS")
	}
	if o.Target != "" && o.Token == "" {
		return errors.New("--token: a token that may do what the bench does is needed with --target")
	}
	if o.Servers > 1 && o.Backend != "raft" && o.Target == "" {
		return fmt.Errorf("--servers: %d needs --backend raft, not %s", o.Servers, o.Backend)
	}
	return o.Options.Complete()
}

// vaultServer is one started server and its configuration.
type vaultServer struct {
	proc *spawn.Process
	args []string
	addr string
}

// VaultCluster is what a bench of the secrets plane runs against.
type VaultCluster struct {
	opts       *SecretsOptions
	servers    []*vaultServer
	pg         *postgres.Server
	catalog    *bench.Target // that the storage "consul" is
	dir        string
	addr       string // of the active server, or the target
	Token      string
	unsealKey  string
	durability string
}

// OpenVault starts the servers that the options ask for, unsealed, or takes the target.
func OpenVault(ctx context.Context, o *SecretsOptions) (*VaultCluster, error) {
	c := &VaultCluster{opts: o, addr: o.Target, Token: o.Token}
	if o.Target != "" {
		return c, c.askDurability(ctx)
	}
	if what := o.lacks(); what != "" {
		return nil, fmt.Errorf("--backend %s: needs %s", o.Backend, what)
	}
	dir, err := os.MkdirTemp(o.KeepDir, "corbel-bench")
	if err != nil {
		return nil, err
	}
	c.dir, c.durability = dir, durabilities[o.Backend]
	if o.Servers > 1 {
		c.durability = fmt.Sprintf("HA, %d replicas, fsynced by a majority", o.Servers)
	}
	o.Say("starting %d server(s) on %s, data in %s ...", o.Servers, o.Backend, dir)
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// durabilities say what an answered write outlives. A cluster is not to be compared with
// a single server without a word.
var durabilities = map[string]string{
	"raft":       "HA with more servers, 1 replica here, fsynced",
	"file":       "single server, 1 replica, fsynced",
	"postgresql": "HA with more servers, 1 replica (its own server, default settings), fsynced",
	"consul":     "HA with more servers, 1 replica here (a catalog of Corbel's own), fsynced",
	"s3":         "HA with more servers, what the bucket promises",
	"gcs":        "HA with more servers, what the bucket promises",
	"inmem":      "single server, nothing is kept",
}

func (c *VaultCluster) askDurability(ctx context.Context) error {
	var st struct {
		Storage string `json:"storage_type"`
		Version string `json:"version"`
	}
	if err := c.Call(ctx, "GET", "sys/seal-status", nil, &st); err != nil {
		return err
	}
	c.durability = fmt.Sprintf("target on %s, version %s", st.Storage, st.Version)
	return nil
}

// vaultConfig is a server's configuration, in the words that Vault and OpenBao read too.
func (c *VaultCluster) vaultConfig(i int, ports []int) string {
	var b strings.Builder
	dir := filepath.Join(c.dir, fmt.Sprintf("server-%d", i+1))
	switch c.opts.Backend {
	case "raft":
		fmt.Fprintf(&b, "storage \"raft\" {\n  path = %q\n  node_id = \"server-%d\"\n  performance_multiplier = 1\n", dir,
			i+1)
		if i > 0 {
			fmt.Fprintf(&b, "  retry_join { leader_api_addr = \"http://%s\" }\n", c.servers[0].addr)
		}
		b.WriteString("}\n")
	case "file":
		fmt.Fprintf(&b, "storage \"file\" { path = %q }\n", dir)
	case "postgresql":
		fmt.Fprintf(&b, "storage \"postgresql\" { connection_url = %q }\n", c.pg.URL())
	case "consul":
		fmt.Fprintf(&b, "storage \"consul\" {\n  address = %q\n  path = \"vault/\"\n}\n", c.catalog.HTTP)
	case "s3": // credentials are the environment's
		fmt.Fprintf(&b, "storage \"s3\" {\n  path = %q\n  s3_force_path_style = \"%t\"\n}\n", filepath.Base(c.dir),
			os.Getenv("AWS_S3_ENDPOINT") != "")
	case "gcs":
		b.WriteString("storage \"gcs\" {}\n")
	case "inmem":
		b.WriteString("storage \"inmem\" {}\n")
	}
	fmt.Fprintf(&b, "listener \"tcp\" {\n  address = \"127.0.0.1:%d\"\n  cluster_address = \"127.0.0.1:%d\"\n  "+
		"tls_disable = true\n}\n", ports[0], ports[1])
	fmt.Fprintf(&b, "api_addr = \"http://127.0.0.1:%d\"\ncluster_addr = \"https://127.0.0.1:%d\"\ndisable_mlock = true\n",
		ports[0], ports[1])
	return b.String()
}

func (c *VaultCluster) start(ctx context.Context) (err error) {
	if c.opts.Backend == "postgresql" {
		if c.pg, err = postgres.Start(ctx); err != nil {
			return err
		}
	}
	if c.opts.Backend == "consul" {
		if c.catalog, err = c.openCatalog(ctx); err != nil {
			return err
		}
	}
	for i := range c.opts.Servers {
		ports, err := testport.Free(2)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(c.dir, fmt.Sprintf("server-%d", i+1)), 0o700); err != nil {
			return err
		}
		file := filepath.Join(c.dir, fmt.Sprintf("server-%d.hcl", i+1))
		if err := os.WriteFile(file, []byte(c.vaultConfig(i, ports)), 0o600); err != nil {
			return err
		}
		args := []string{"server", "-config=" + file, "-log-level=warn"}
		if name := filepath.Base(c.opts.Binary); name != "vault" && name != "bao" {
			args = append([]string{"vault"}, args...)
		}
		s := &vaultServer{args: append(args, c.opts.ServerArgs...), addr: fmt.Sprintf("127.0.0.1:%d", ports[0])}
		c.servers = append(c.servers, s)
		if err := c.launch(ctx, s); err != nil {
			return err
		}
		if i == 0 {
			if err := c.init(ctx); err != nil {
				return err
			}
		}
		if err := c.unseal(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// openCatalog starts the catalog that the storage "consul" is: this binary's, whatever is measured.
func (c *VaultCluster) openCatalog(ctx context.Context) (*bench.Target, error) {
	o := bench.Options{Servers: 1, KeepDir: c.opts.KeepDir, Progress: c.opts.Progress}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	return bench.OpenTarget(ctx, &o)
}

// launch starts a server and waits until it answers.
func (c *VaultCluster) launch(ctx context.Context, s *vaultServer) (err error) {
	if s.proc, err = bench.StartProcess(c.opts.Binary, s.args, c.dir); err != nil {
		return err
	}
	return bench.WaitHTTP(ctx, s.proc, s.addr, "/v1/sys/seal-status", bench.OK)
}

func (c *VaultCluster) init(ctx context.Context) error {
	c.addr = c.servers[0].addr
	var first struct {
		Keys  []string `json:"keys"`
		Token string   `json:"root_token"`
	}
	if err := c.Call(ctx, "PUT", "sys/init", map[string]int{"secret_shares": 1, "secret_threshold": 1},
		&first); err != nil {
		return err
	}
	if len(first.Keys) != 1 {
		return fmt.Errorf("sys/init gave %d keys, not one", len(first.Keys))
	}
	c.Token, c.unsealKey = first.Token, first.Keys[0]
	return nil
}

// unseal gives the key until the server is unsealed: one that joins has no keyring at first.
func (c *VaultCluster) unseal(ctx context.Context, s *vaultServer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	one := *c
	one.addr = s.addr
	for {
		var st struct {
			Sealed bool `json:"sealed"`
		}
		err := one.Call(ctx, "PUT", "sys/unseal", map[string]string{"key": c.unsealKey}, &st)
		if err == nil && !st.Sealed {
			return bench.WaitHTTP(ctx, s.proc, s.addr, "/v1/sys/health?standbyok=true&perfstandbyok=true",
				bench.OK)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("unseal %s: %w (last: %w)\n%s", s.addr, ctx.Err(), err, s.proc.Log())
		case <-s.proc.Ended():
			return fmt.Errorf("the server ended while it was unsealed: %w\n%s", s.proc.Err(), s.proc.Log())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// setupTimeout bounds one request beside the load: a revocation may take a server minutes.
const setupTimeout = 10 * time.Minute

var setupClient = &http.Client{Timeout: setupTimeout}

// Call makes one request beside the load. An answer outside 2xx is an error with its body.
func (c *VaultCluster) Call(ctx context.Context, method, path string, body, into any) error {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.addr+"/v1/"+path, payload)
	if err != nil {
		return err
	}
	if c.Token != "" {
		req.Header.Set("X-Vault-Token", c.Token)
	}
	resp, err := setupClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: status %d: %.300s", method, path, resp.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// Request renders a request of a load once.
func (c *VaultCluster) Request(method, path, token string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s /v1/%s HTTP/1.1\r\nHost: %s\r\nX-Vault-Token: %s\r\n", method, path, c.addr, token)
	if body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// active is the started server that answers, nil for a target.
func (c *VaultCluster) active() *vaultServer {
	for _, s := range c.servers {
		if s.addr == c.addr {
			return s
		}
	}
	return nil
}

func (c *VaultCluster) cpuSeconds() float64 {
	if s := c.active(); s != nil {
		return s.proc.CPU()
	}
	return 0
}

// success is what a load of the secrets plane counts: a fast error is no throughput.
func success(r bench.Reply) bool { return r.Status == 200 || r.Status == 204 }

// errAnswers is a run with answers that are not 200 or 204: its figures mean nothing.
var errAnswers = errors.New("some answers were neither 200 nor 204: the figures mean nothing")

// Measure runs a load and makes its row; any answer that is no success fails it.
func (c *VaultCluster) Measure(ctx context.Context, what, floor string, spec bench.LoadSpec) (bench.Row, error) {
	o := c.opts
	spec.Addr, spec.OK = c.addr, success
	if spec.Connections == 0 {
		spec.Connections = o.Connections
	}
	if spec.Duration == 0 {
		spec.Duration = o.Duration
	}
	o.Say("%s at %d connections for %s ...", what, spec.Connections, spec.Duration)
	warm := spec
	warm.Duration = spec.Duration / 10
	if _, err := bench.RunLoad(ctx, warm); err != nil {
		return bench.Row{}, fmt.Errorf("%s: %w", what, err)
	}
	cpu := c.cpuSeconds()
	load, err := bench.RunLoad(ctx, spec)
	if err != nil {
		return bench.Row{}, fmt.Errorf("%s: %w", what, err)
	}
	row := load.Row(fmt.Sprintf("%s -c%d", what, spec.Connections), floor)
	if s := c.active(); s != nil {
		row.RSSBytes = s.proc.RSS()
		row.ServerCPUMicros = (c.cpuSeconds() - cpu) * 1e6 / float64(load.Requests)
	}
	if load.Errors > 0 {
		return row, fmt.Errorf("%s: %d of %d: %w (first: %w)", what, load.Errors, load.Requests, errAnswers, load.FirstError)
	}
	return row, nil
}

func (c *VaultCluster) Stop() {
	for _, s := range c.servers {
		if s.proc != nil {
			_ = s.proc.Stop()
		}
	}
	if c.pg != nil {
		c.pg.Remove()
	}
	if c.catalog != nil {
		c.catalog.Stop()
	}
	if c.dir != "" && c.opts.KeepDir == "" {
		_ = os.RemoveAll(c.dir)
	}
}

func newSecretsResult(name string, o *SecretsOptions) *bench.Result {
	r := bench.NewResult(name, &o.Options)
	if o.Target == "" {
		r.Target = fmt.Sprintf("%s, %d server(s) on %s started by the bench", filepath.Base(o.Binary), o.Servers, o.Backend)
	}
	return r
}
