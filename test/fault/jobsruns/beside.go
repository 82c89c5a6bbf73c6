package jobsruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/catalogruns"
)

// Beside is placements beside what is slow: metrics sinks that stall, and a secrets plane that takes long for each
// answer while tasks wait for their tokens.
type Beside struct {
	Nodes       int // default 50
	Allocations int // of a measured placement; default 200
	Pairs       int // of a quiet and a troubled one, of each kind; default 1
	// Answer is how long the secrets plane takes for an answer; default 2 s. Needs is how many tasks need a token of it;
	// default 20, which is more than a host asks for at once.
	Answer time.Duration
	Needs  int
	// Least is what must be left of the rate, by the median of the pairs; 0 is not judged.
	Least float64
}

// BesideReport is what a run did. Sink and Secrets are the rates of each pair, the troubled one in parts of the quiet.
type BesideReport struct {
	Sink, Secrets []float64
	Tokens        int // that tasks got
	Dropped       float64
}

func (b *Beside) complete() {
	for _, one := range []struct {
		v   *int
		def int
	}{{&b.Nodes, 50}, {&b.Allocations, 200}, {&b.Pairs, 1}, {&b.Needs, 20}} {
		if *one.v == 0 {
			*one.v = one.def
		}
	}
	if b.Answer == 0 {
		b.Answer = 2 * time.Second
	}
}

// besideRun measures placements on one cluster.
type besideRun struct {
	*fleet
	cfg   Beside
	clerk *anywhere
	round int
}

// RunBeside measures on two clusters of three servers in turns: one whose sinks stall, and one that also has a host
// whose tasks need tokens.
func RunBeside(ctx context.Context, l *faultrun.Lab, cfg Beside, seed uint64) (report BesideReport, err error) {
	cfg.complete()
	quiet, err := openBeside(ctx, l, cfg, harness.Config{Servers: 3}, seed)
	if err != nil {
		return report, err
	}
	defer quiet.end()
	sinks, stop, err := stalls(l.Dir)
	if err != nil {
		return report, err
	}
	defer stop()
	stalled, err := openBeside(ctx, l, cfg, harness.Config{Servers: 3, HCL: []string{sinks}}, seed)
	if err != nil {
		return report, err
	}
	defer stalled.end()
	for i := range cfg.Pairs {
		ratio, err := pair(ctx, i%2 == 0, quiet.place, stalled.place)
		if err != nil {
			return report, fmt.Errorf("beside sinks that stall: %w\n%s", err, stalled.Logs())
		}
		report.Sink = append(report.Sink, ratio)
	}
	if report.Dropped, err = stalled.dropped(ctx); err != nil {
		return report, err
	}
	if err := quiet.secrets(ctx, &report); err != nil {
		return report, fmt.Errorf("beside a secrets plane that is slow: %w\n%s", err, quiet.Logs())
	}
	return report, errors.Join(left("sinks that stall", report.Sink, cfg.Least),
		left("a secrets plane that is slow", report.Secrets, cfg.Least), quiet.Damage(), stalled.Damage())
}

// left judges the median.
func left(beside string, ratios []float64, least float64) error {
	sorted := slices.Sorted(slices.Values(ratios))
	if median := sorted[len(sorted)/2]; median < least {
		return fmt.Errorf("beside %s, %.2f of the rate of placements is left by the median of %d pairs: %.2f", beside,
			median, len(ratios), ratios)
	}
	return nil
}

// stalls is a configuration with sinks that take nothing.
func stalls(dir string) (hcl string, stop func(), err error) {
	tcp, stopTCP, err := catalogruns.Stalling("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(dir, "jobs-sink.sock")
	_, stopUnix, err := catalogruns.Stalling("unix", path)
	if err != nil {
		stopTCP()
		return "", nil, err
	}
	return fmt.Sprintf("telemetry { statsite_address = %q, dogstatsd_addr = \"unixstream://%s\" }", tcp, path),
		func() { stopTCP(); stopUnix() }, nil
}

func openBeside(ctx context.Context, l *faultrun.Lab, cfg Beside, shape harness.Config, seed uint64) (*besideRun,
	error,
) {
	f, err := open(ctx, l, shape, cfg.Nodes)
	if err != nil {
		return nil, err
	}
	r := &besideRun{fleet: f, cfg: cfg, clerk: f.anywhere(seed, 3)}
	r.clerk.client.Timeout = 30 * time.Second
	return r, nil
}

func (r *besideRun) end() {
	r.clerk.client.Close()
	r.close()
}

// pair runs a quiet and a troubled placement, in this order or the other, and compares their rates.
func pair(ctx context.Context, quietFirst bool, quiet, troubled func(context.Context) (time.Duration, error)) (float64,
	error,
) {
	one, two := quiet, troubled
	if !quietFirst {
		one, two = troubled, quiet
	}
	a, err := one(ctx)
	if err != nil {
		return 0, err
	}
	b, err := two(ctx)
	if !quietFirst {
		a, b = b, a
	}
	return a.Seconds() / b.Seconds(), err
}

// place registers jobs, waits until all their allocations run, and purges them.
func (r *besideRun) place(ctx context.Context) (time.Duration, error) {
	r.round++
	const each = 50
	var list []*work
	for i := range max(1, r.cfg.Allocations/each) {
		list = append(list, &work{id: fmt.Sprintf("placed-%d-%d", r.round, i), kind: "batch", count: each})
	}
	began := time.Now()
	for _, w := range list {
		if err := w.put(ctx, r.clerk); err != nil {
			return 0, err
		}
	}
	err := spawn.Until(ctx, patience, "all allocations run", func() error {
		n, err := r.running(ctx, fmt.Sprintf("placed-%d-", r.round))
		if err == nil && n < each*len(list) {
			err = fmt.Errorf("%d of %d do", n, each*len(list))
		}
		return err
	})
	took := time.Since(began)
	for _, w := range list {
		if err == nil {
			err = r.clerk.do(ctx, "DELETE", "/v1/job/"+w.id+"?purge=true", nil, nil)
		}
	}
	if err == nil {
		err = r.empty(ctx)
	}
	return took, err
}

// running is how many allocations run of the jobs whose names begin so.
func (r *besideRun) running(ctx context.Context, prefix string) (n int, err error) {
	var jobs []struct {
		JobSummary struct {
			Summary map[string]struct{ Running int }
		}
	}
	if err := r.read(ctx, "/v1/jobs?stale&prefix="+url.QueryEscape(prefix), &jobs); err != nil {
		return 0, err
	}
	for _, j := range jobs {
		for _, g := range j.JobSummary.Summary {
			n += g.Running
		}
	}
	return n, nil
}

// empty waits until nothing runs on the simulated nodes.
func (r *besideRun) empty(ctx context.Context) error {
	return until(ctx, "the nodes are empty", func() error {
		var nodes map[int]map[string]string
		if err := r.ask(ctx, "running", nil, &nodes); err != nil {
			return spawn.Hopeless(err)
		}
		for number, list := range nodes {
			if len(list) > 0 {
				return fmt.Errorf("node %d runs %v", number, list)
			}
		}
		return nil
	})
}

// dropped waits until a server counts what its sinks did not take.
func (r *besideRun) dropped(ctx context.Context) (n float64, err error) {
	err = until(ctx, "drops are counted", func() error {
		var got struct {
			Gauges   []struct{ Name string }
			Counters []struct {
				Name string
				Sum  float64
			}
		}
		a := r.Admin.At(r.Servers[0].HTTP).Do(ctx, "GET", "/v1/agent/metrics", nil)
		if err := errors.Join(asked(a), json.Unmarshal(a.Body, &got)); err != nil {
			return err
		}
		for _, c := range got.Counters {
			if strings.Contains(c.Name, "telemetry.sink.dropped") {
				n = max(n, c.Sum)
			}
		}
		if n == 0 {
			return errors.New("none is")
		}
		return nil
	})
	return n, err
}

// slowStore is a secrets plane that takes long for a login.
type slowStore struct {
	takes time.Duration
	mu    sync.Mutex // guards what follows
	open  int
	given int
}

// ServeHTTP implements http.Handler.
func (s *slowStore) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if !strings.HasSuffix(q.URL.Path, "/login") {
		http.Error(w, `{"errors":["only logins are known here"]}`, http.StatusNotFound)
		return
	}
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	err := spawn.Sleep(q.Context(), s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if err != nil {
		return // it gave up
	}
	s.given++
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"auth":{"client_token":"token-%d","lease_duration":86400,"renewable":true,"policies":[]}}`,
		s.given)
}

func (s *slowStore) state() (open, given int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.given
}

// needy is the job whose tasks need a token, on the host that asks the slow store.
func (r *besideRun) needy(vault bool, count int) any {
	type object = map[string]any
	task := object{"Name": "t", "Driver": "raw_exec", "Config": object{"command": "/bin/sleep", "args": []string{"3600"}},
		"LogConfig": object{"MaxFiles": 1, "MaxFileSizeMB": 1}, "Resources": object{"CPU": 1, "MemoryMB": 10}}
	id := "needs-none"
	if vault {
		id, task["Vault"] = "needs", object{"Role": "any", "ChangeMode": "noop"}
	}
	return object{"Job": object{"ID": id, "Name": id, "Type": "batch", "Datacenters": []string{"*"},
		"Constraints": []object{{"LTarget": "${node.class}", "RTarget": "real", "Operand": "="}},
		"TaskGroups": []object{{"Name": "g", "Count": count, "EphemeralDisk": object{"SizeMB": taskDiskMB},
			"Tasks": []object{task}}}}}
}

// secrets measures placements while tasks of a real host wait for their tokens; then all of them start.
func (r *besideRun) secrets(ctx context.Context, report *BesideReport) error {
	store := &slowStore{takes: r.cfg.Answer}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: store, ReadHeaderTimeout: time.Minute}
	serving := background(ctx, func(context.Context) error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	defer func() { _ = server.Close(); _ = serving() }()
	host, err := r.Agent("host", len(r.Servers))
	if err != nil {
		return err
	}
	host.Args = append(host.Args, "-hcl", fmt.Sprintf(`jobs { agent { enabled = true, raw_exec = true, node_class = "real",
		secrets_address = "http://%s" } }`, listener.Addr()))
	if err := host.Start(); err != nil {
		return err
	}
	defer func() { _ = host.Stop() }()
	needs := func(context.Context) error {
		return r.clerk.do(ctx, "PUT", "/v1/jobs", r.needy(true, r.cfg.Needs), nil)
	}
	for i := range r.cfg.Pairs {
		ratio, err := pair(ctx, i%2 == 0, r.place, func(ctx context.Context) (time.Duration, error) {
			if err := needs(ctx); err != nil {
				return 0, err
			}
			if err := r.waits(ctx, store); err != nil {
				return 0, fmt.Errorf("%w\n%s", err, host.Log())
			}
			took, err := r.place(ctx)
			if err == nil {
				err = r.none(ctx)
			}
			return took, err
		})
		if err != nil {
			return err
		}
		report.Secrets = append(report.Secrets, ratio)
		if err := r.all(ctx, "needs", r.cfg.Needs); err != nil {
			return fmt.Errorf("%w\n%s", err, host.Log())
		}
		if err := r.gone(ctx, "needs", "needs-none"); err != nil {
			return err
		}
	}
	_, report.Tokens = store.state()
	// The job was purged only when all ran, so each task logged in once.
	if want := r.cfg.Pairs * r.cfg.Needs; report.Tokens != want {
		return fmt.Errorf("%d tokens were given to %d tasks", report.Tokens, want)
	}
	return host.Damage()
}

// waits waits until tasks ask the store.
func (r *besideRun) waits(ctx context.Context, store *slowStore) error {
	return spawn.Until(ctx, patience, "tasks wait for their tokens", func() error {
		open, given := store.state()
		if open == 0 && given == 0 {
			return errors.New("nobody asks for one")
		}
		return nil
	})
}

// none has a task that needs no token start on the same host beside those that wait.
func (r *besideRun) none(ctx context.Context) error {
	if err := r.clerk.do(ctx, "PUT", "/v1/jobs", r.needy(false, 1), nil); err != nil {
		return err
	}
	return r.all(ctx, "needs-none", 1)
}

// all waits until all allocations of a job run, the first of their tries.
func (r *besideRun) all(ctx context.Context, job string, want int) error {
	return spawn.Until(ctx, patience+3*r.cfg.Answer, "all of "+job+" run", func() error {
		var list []allocation
		if err := r.read(ctx, "/v1/job/"+job+"/allocations", &list); err != nil {
			return err
		}
		n := 0
		for i := range list {
			switch list[i].ClientStatus {
			case "running":
				n++
			case "pending":
			default:
				return spawn.Hopeless(fmt.Errorf("%s is %s", list[i].Name, list[i].ClientStatus))
			}
		}
		if n != want || len(list) != want {
			return fmt.Errorf("%d of %d do, of %d allocations", n, want, len(list))
		}
		return nil
	})
}

// gone purges jobs and waits until nothing of them is live.
func (r *besideRun) gone(ctx context.Context, jobs ...string) error {
	for _, id := range jobs {
		if err := r.clerk.do(ctx, "DELETE", "/v1/job/"+id+"?purge=true", nil, nil); err != nil {
			return err
		}
	}
	return until(ctx, "the host's tasks ended", func() error {
		for _, id := range jobs {
			var list []allocation
			if err := r.read(ctx, "/v1/job/"+id+"/allocations", &list); err != nil {
				return err
			}
			for i := range list {
				if s := list[i].ClientStatus; s == "running" || s == "pending" {
					return fmt.Errorf("%s is %s", list[i].Name, s)
				}
			}
		}
		return nil
	})
}
