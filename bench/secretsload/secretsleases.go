package secretsload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/bench"
)

// LeasesOptions are the options of the storms of leases.
type LeasesOptions struct {
	SecretsOptions
	// Leases are how many there are when the storm begins.
	Leases int
	// Prefix is how many logins the storm of that name ends; 0 is Leases.
	Prefix int
	// Storms are what is measured: some of LeaseStorms.
	Storms []string
}

// LeaseStorms are the storms: a parent token with its children is revoked, a prefix of
// logins is revoked, a server starts with all its leases.
var LeaseStorms = []string{"tree", "prefix", "start"}

func (o *LeasesOptions) complete() error {
	if o.Leases == 0 {
		o.Leases = 10_000
	}
	if o.Prefix == 0 {
		o.Prefix = o.Leases
	}
	for name, n := range map[string]int{"--leases": o.Leases, "--prefix": o.Prefix} {
		if n < 1 || n > 10_000_000 {
			return fmt.Errorf("%s: must be between 1 and 10000000, not %d", name, n)
		}
	}
	if len(o.Storms) == 0 {
		o.Storms = []string{"tree", "prefix"}
	}
	for _, s := range o.Storms {
		if !slices.Contains(LeaseStorms, s) {
			return fmt.Errorf("--storm: must be some of %s, not %q", strings.Join(LeaseStorms, ", "), s)
		}
		if s == "start" && (o.Target != "" || o.Backend == "inmem" || o.Servers > 1) {
			return errors.New("--storm start: restarts the one server that the bench started, on a storage that keeps something")
		}
	}
	return o.SecretsOptions.Complete()
}

// storm is a load with what it needs on the server.
type storm struct {
	*VaultCluster
	o     *LeasesOptions
	reads [][]byte
	r     *bench.Result
}

// RunLeases makes many leases and ends them at once, while reads go on.
func RunLeases(ctx context.Context, o LeasesOptions) (*bench.Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c, err := OpenVault(ctx, &o.SecretsOptions)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	s := &storm{VaultCluster: c, o: &o, r: newSecretsResult("leases", &o.SecretsOptions)}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	defer c.disable(ctx, "mounts")
	run := map[string]func(context.Context) error{"tree": s.tree, "prefix": s.prefix, "start": s.restart}
	for _, name := range o.Storms {
		if err := run[name](ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	c.note(s.r.Rows)
	return s.r, s.r.AddFloors(ctx, &o.Options)
}

// prepare makes the secrets that are read meanwhile, and who may make tokens.
func (s *storm) prepare(ctx context.Context) error {
	if err := s.enable(ctx, "mounts", "kv"); err != nil {
		return err
	}
	puts := make([][]byte, 1000)
	s.reads = make([][]byte, len(puts))
	body := SecretBody(1)
	for i := range puts {
		puts[i], s.reads[i] = s.Request("PUT", SecretPath(1, i), s.Token, body),
			s.Request("GET", SecretPath(1, i), s.Token, nil)
	}
	if err := s.Fill(ctx, puts); err != nil {
		return err
	}
	policy := map[string]string{"policy": `path "auth/token/create" { capabilities = ["create", "update"] }`}
	return s.Call(ctx, "PUT", "sys/policies/acl/"+SecretsMount, policy, nil)
}

func (s *storm) read(int, int64) []byte { return s.reads[rand.IntN(len(s.reads))] }

// made is a token that was made.
type made struct {
	Auth struct {
		Token string `json:"client_token"`
	} `json:"auth"`
}

// tree ends one parent with all its children.
func (s *storm) tree(ctx context.Context) error {
	var parent, child made
	body := map[string]any{"policies": []string{SecretsMount}, "ttl": "24h"}
	if err := s.Call(ctx, "POST", "auth/token/create", body, &parent); err != nil {
		return err
	}
	below := *s.VaultCluster
	below.Token = parent.Auth.Token
	if err := below.Call(ctx, "POST", "auth/token/create", body, &child); err != nil {
		return err
	}
	if err := s.many(ctx, "child tokens made", s.Request("POST", "auth/token/create", parent.Auth.Token, mustJSON(body)),
		s.o.Leases-1); err != nil {
		return err
	}
	return s.revoked(ctx, fmt.Sprintf("revoke a parent of %d child tokens", s.o.Leases), child.Auth.Token,
		func(ctx context.Context) error {
			return s.Call(ctx, "POST", "auth/token/revoke", map[string]string{"token": parent.Auth.Token}, nil)
		})
}

// prefix ends all logins of an auth method.
func (s *storm) prefix(ctx context.Context) error {
	login, err := s.approle(ctx)
	if err != nil {
		return err
	}
	defer s.disable(ctx, "auth")
	var one made
	if err := s.Call(ctx, "POST", "auth/"+SecretsMount+"/login", login, &one); err != nil {
		return err
	}
	if err := s.many(ctx, "approle logins", s.Request("POST", "auth/"+SecretsMount+"/login", "", mustJSON(login)),
		s.o.Prefix-1); err != nil {
		return err
	}
	return s.revoked(ctx, fmt.Sprintf("revoke a prefix of %d logins", s.o.Prefix), one.Auth.Token,
		func(ctx context.Context) error {
			return s.Call(ctx, "PUT", "sys/leases/revoke-prefix/auth/"+SecretsMount+"/login", nil, nil)
		})
}

func (s *storm) approle(ctx context.Context) (map[string]string, error) {
	if err := s.enable(ctx, "auth", "approle"); err != nil {
		return nil, err
	}
	if err := s.Call(ctx, "POST", "auth/"+SecretsMount+"/role/bench", map[string]any{"token_policies": SecretsMount,
		"token_ttl": "24h"}, nil); err != nil {
		return nil, err
	}
	var role, secret struct {
		Data map[string]any `json:"data"`
	}
	if err := s.Call(ctx, "GET", "auth/"+SecretsMount+"/role/bench/role-id", nil, &role); err != nil {
		return nil, err
	}
	if err := s.Call(ctx, "POST", "auth/"+SecretsMount+"/role/bench/secret-id", nil, &secret); err != nil {
		return nil, err
	}
	return map[string]string{"role_id": fmt.Sprint(role.Data["role_id"]),
		"secret_id": fmt.Sprint(secret.Data["secret_id"])}, nil
}

// many sends one request n times and adds the row.
func (s *storm) many(ctx context.Context, what string, raw []byte, n int) error {
	if n == 0 {
		return nil
	}
	s.o.Say("%d %s at %d connections ...", n, what, s.o.Connections)
	cpu := s.cpuSeconds()
	load, err := bench.RunTimes(ctx, s.addr, s.o.Connections, n, success, func(int) []byte { return raw })
	if err != nil {
		return err
	}
	row := load.Row(fmt.Sprintf("%s: %s -c%d", s.backend(), what, s.o.Connections), "")
	row.ServerCPUMicros = (s.cpuSeconds() - cpu) * 1e6 / float64(n)
	if server := s.active(); server != nil {
		row.RSSBytes = server.proc.RSS()
	}
	s.r.Rows = append(s.r.Rows, row)
	return nil
}

// How long reads go on before a storm, uncounted, and how long they are counted at least.
const (
	readsFirst = 500 * time.Millisecond
	readsLeast = 200 * time.Millisecond
)

// revoked measures reads, then reads beside the revocation, and asks whether a token is gone.
func (s *storm) revoked(ctx context.Context, what, token string, revoke func(context.Context) error) error {
	quiet, err := s.Measure(ctx, s.backend()+": KV read, quiet", "", bench.LoadSpec{Next: s.read})
	if err != nil {
		return err
	}
	s.o.Say("%s, while reads go on ...", what)
	during, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var load *bench.LoadResult
	var loadErr error
	wg.Go(func() {
		load, loadErr = bench.RunLoad(during, bench.LoadSpec{Addr: s.addr, Connections: s.o.Connections, Warmup: readsFirst,
			Duration: time.Hour, Next: s.read, OK: success})
	})
	bench.Settle(ctx, readsFirst)
	cpu, start := s.cpuSeconds(), time.Now()
	err = revoke(ctx)
	took := time.Since(start)
	cpu = s.cpuSeconds() - cpu
	bench.Settle(ctx, readsLeast-took)
	stop()
	wg.Wait()
	if err := errors.Join(err, loadErr); err != nil {
		return err
	}
	if load.Errors > 0 {
		return fmt.Errorf("%d of %d reads beside it: %w (first: %w)", load.Errors, load.Requests, errAnswers, load.FirstError)
	}
	gone := *s.VaultCluster
	gone.Token = token
	if err := gone.Call(ctx, "GET", "auth/token/lookup-self", nil, nil); err == nil {
		return errors.New("a token that was revoked is still good")
	}
	end := load.Row(s.backend()+": KV read beside it", "")
	end.Note = fmt.Sprintf("p99 is %.1f times the quiet one", end.Millis["p99"]/quiet.Millis["p99"])
	storm := bench.Row{What: s.backend() + ": " + what, Requests: 1,
		Millis: map[string]float64{"max": took.Seconds() * 1000}}
	storm.Note = fmt.Sprintf("reads' p99 %.2f ms before it, %.2f ms beside it", quiet.Millis["p99"], end.Millis["p99"])
	if cpu > 0 {
		storm.Note += fmt.Sprintf("; server cpu %.2f s, that of the reads too", cpu)
	}
	s.r.Rows = append(s.r.Rows, storm, quiet, end)
	return nil
}

// restart measures how long a server with all its leases takes to be ready, and their memory.
func (s *storm) restart(ctx context.Context) error {
	took, err := s.again(ctx)
	if err != nil {
		return err
	}
	s.r.Rows = append(s.r.Rows, bench.Row{What: s.backend() + ": kill -9 to ready without leases", Requests: 1,
		Millis: map[string]float64{"max": took.Seconds() * 1000}})
	empty := s.settled(ctx)
	body := mustJSON(map[string]any{"policies": []string{SecretsMount}, "ttl": "24h", "no_parent": true})
	if err := s.many(ctx, "orphan tokens made", s.Request("POST", "auth/token/create", s.Token, body),
		s.o.Leases); err != nil {
		return err
	}
	if took, err = s.again(ctx); err != nil {
		return err
	}
	full := s.settled(ctx)
	each := (full - empty) / int64(s.o.Leases)
	s.r.Rows = append(s.r.Rows, bench.Row{
		What:     fmt.Sprintf("%s: kill -9 to ready with %d leases", s.backend(), s.o.Leases),
		Requests: 1, RSSBytes: full, LeaseBytes: each,
		Millis: map[string]float64{"max": took.Seconds() * 1000},
		Note:   fmt.Sprintf("%d bytes of memory a lease beside %d MiB without", each, empty>>20)})
	return nil
}

// afterStart is how long a server has to give back what its start alone needed.
const afterStart = 10 * time.Second

// settled is the server's memory a while after its start.
func (s *storm) settled(ctx context.Context) int64 {
	if s.o.Duration >= time.Second { // a try of the tool, whose figures do not matter, waits for nothing
		bench.Settle(ctx, afterStart)
	}
	return s.active().proc.RSS()
}

// again kills the server and measures the time until it has answered a read.
func (s *storm) again(ctx context.Context) (time.Duration, error) {
	server := s.active()
	server.proc.Kill()
	start := time.Now()
	if err := s.launch(ctx, server); err != nil {
		return 0, err
	}
	if err := s.unseal(ctx, server); err != nil {
		return 0, err
	}
	if err := s.Fill(ctx, s.reads); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}
