// Package jobsruns has the scenarios of the jobs plane: servers and nodes that are killed, cut off or held up while
// jobs are registered, updated, stopped and dispatched, and a ledger that says what must run afterwards: no allocation
// twice, none forgotten, and none moved without need.
package jobsruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/kit/testport"
	faultrun "corbel.dev/corbel/test/fault"
)

// patience is how long one thing may take on a busy machine.
const patience = 5 * time.Minute

// until is spawn.Until for questions that cost the cluster something: it asks a few times a second.
func until(ctx context.Context, what string, cond func() error) error {
	return spawn.Until(ctx, patience, what, func() error {
		err := cond()
		if err != nil {
			_ = spawn.Sleep(ctx, 200*time.Millisecond)
		}
		return err
	})
}

// What a task asks for; a node has room for places of them.
const (
	taskCPU, taskMemoryMB, taskDiskMB = 100, 10, 10

	places = 64
)

// fleet is a cluster and the simulated nodes that serve it.
type fleet struct {
	*faultrun.Cluster
	ports []int // of Nomad's API, by server
	nodes *bench.Child
	alive map[int]bool // numbers of nodes that were not killed
	next  int          // the number of the next node
}

// open starts servers and nodes, and waits until the servers have them all.
func open(ctx context.Context, l *faultrun.Lab, shape harness.Config, nodes int) (*fleet, error) {
	ports, err := testport.Free(l.Size(shape.Servers))
	if err != nil {
		return nil, err
	}
	f := &fleet{ports: ports, alive: map[int]bool{}}
	each := shape.Each
	shape.Each = func(s *harness.Server, i int) []string {
		hcl := []string{fmt.Sprintf("jobs { enabled = true, port = %d, agent { enabled = false } }", ports[i])}
		if each != nil {
			hcl = append(hcl, each(s, i)...)
		}
		return hcl
	}
	if f.Cluster, err = l.Open(ctx, shape); err != nil {
		return nil, err
	}
	if err := errors.Join(f.serves(ctx), f.start(ctx, l, nodes)); err != nil {
		f.close()
		return nil, fmt.Errorf("%w\n%s", err, f.Logs())
	}
	return f, nil
}

// start has the nodes come.
func (f *fleet) start(ctx context.Context, l *faultrun.Lab, nodes int) (err error) {
	if f.nodes, err = bench.StartChild(l.Binary, l.Dir, "jobnodes"); err != nil {
		return err
	}
	var servers []string
	for _, s := range f.Servers {
		servers = append(servers, s.RPC)
	}
	if err := f.ask(ctx, "start", map[string]any{"servers": servers, "datacenter": "dc1", "first": 0, "count": nodes,
		"cpu": places * taskCPU, "memory_mb": places * taskMemoryMB, "disk_mb": places * taskDiskMB}, nil); err != nil {
		return err
	}
	f.came(nodes)
	return f.ready(ctx)
}

func (f *fleet) came(n int) {
	for range n {
		f.alive[f.next] = true
		f.next++
	}
}

// more adds nodes.
func (f *fleet) more(ctx context.Context, n int) error {
	if err := f.ask(ctx, "more", map[string]int{"first": f.next, "count": n}, nil); err != nil {
		return err
	}
	f.came(n)
	return f.ready(ctx)
}

// ask calls the process of the nodes.
func (f *fleet) ask(ctx context.Context, method string, body, out any) error {
	return f.nodes.Call(ctx, bench.CallMost, method, body, out)
}

// ready waits until all living nodes are ready to the servers.
func (f *fleet) ready(ctx context.Context) error {
	return until(ctx, "all nodes are ready", func() error {
		n, err := f.count(ctx, "ready")
		if err == nil && n < len(f.alive) {
			err = fmt.Errorf("%d of %d are", n, len(f.alive))
		}
		return err
	})
}

// count is how many of our nodes the servers say to have a status.
func (f *fleet) count(ctx context.Context, status string) (n int, err error) {
	var list []struct{ ID, Status string }
	if err := f.read(ctx, "/v1/nodes", &list); err != nil {
		return 0, err
	}
	for _, one := range list {
		if number := numberOf(one.ID); one.Status == status && (f.alive[number] || status != "ready") {
			n++
		}
	}
	return n, nil
}

// summary is how many allocations a job has.
type summary struct{ Starting, Running int }

// summaries are those of all jobs, by their ids.
func (f *fleet) summaries(ctx context.Context) (map[string]summary, error) {
	var jobs []struct {
		ID         string
		JobSummary struct{ Summary map[string]summary }
	}
	if err := f.read(ctx, "/v1/jobs?stale", &jobs); err != nil {
		return nil, err
	}
	by := make(map[string]summary, len(jobs))
	for _, j := range jobs {
		var all summary
		for _, g := range j.JobSummary.Summary {
			all.Starting += g.Starting
			all.Running += g.Running
		}
		by[j.ID] = all
	}
	return by, nil
}

// numberOf is a simulated node's number by its id, or -1.
func numberOf(id string) int {
	if len(id) != 36 || id[:8] != "51000000" {
		return -1
	}
	n, err := strconv.ParseUint(id[28:], 16, 32)
	if err != nil {
		return -1
	}
	return int(n) - 1
}

// api is the address of a server's Nomad API.
func (f *fleet) api(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(f.ports[i])) }

// read asks some server that answers, with the leader's word.
func (f *fleet) read(ctx context.Context, path string, out any) error {
	var last error
	for i, s := range f.Servers {
		if !s.Running() || s.Frozen() {
			continue
		}
		r := f.Admin.At(f.api(i)).Do(ctx, "GET", path, nil)
		if last = asked(r); last == nil {
			return json.Unmarshal(r.Body, out)
		}
	}
	if last == nil {
		last = errors.New("no server runs")
	}
	return last
}

// leader is the server that leads the jobs plane now.
func (f *fleet) leader(ctx context.Context) (*faultrun.Server, error) {
	var addr string
	if err := f.read(ctx, "/v1/status/leader", &addr); err != nil {
		return nil, err
	}
	for _, s := range f.Servers {
		if s.RPC == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server is %q", addr)
}

// serves waits until every running server answers for the jobs plane.
func (f *fleet) serves(ctx context.Context) error {
	return spawn.Until(ctx, harness.StartLimit, "every server answers for the jobs plane", func() error {
		for i, s := range f.Servers {
			if !s.Running() {
				continue
			}
			if err := asked(f.Admin.At(f.api(i)).Do(ctx, "GET", "/v1/jobs?prefix=none-is-called-so", nil)); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		return nil
	})
}

func (f *fleet) close() {
	if f.nodes != nil {
		f.nodes.Close()
	}
	f.Close()
}

func asked(r faultrun.Reply) error {
	if r.Status/100 != 2 {
		return errors.New(r.String())
	}
	return nil
}

// anywhere is a client that asks another server each time, until one answers. One goroutine.
type anywhere struct {
	f      *fleet
	client *faultrun.Client
	rng    *rand.Rand
	tries  int // beyond the first, of all calls
}

func (f *fleet) anywhere(seed, n uint64) *anywhere {
	return &anywhere{f: f, client: faultrun.NewClient(f.api(0)), rng: rand.New(rand.NewPCG(seed, n))}
}

// do repeats a request that may be repeated until a server says that it was done, or that it makes no sense.
func (a *anywhere) do(ctx context.Context, method, path string, body any, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	first := true
	return spawn.Until(ctx, patience, method+" "+path, func() error {
		if !first {
			a.tries++
		}
		first = false
		r := a.client.At(a.f.api(a.rng.IntN(len(a.f.ports)))).Do(ctx, method, path, text)
		switch err := asked(r); {
		case r.Status/100 == 4 && r.Status != 429:
			return spawn.Hopeless(err)
		case err != nil:
			return err
		case out != nil:
			return json.Unmarshal(r.Body, out)
		}
		return nil
	})
}

// background runs until the returned function ends it, which returns what went wrong.
func background(ctx context.Context, list ...func(context.Context) error) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	failed := make([]error, len(list))
	for i, one := range list {
		group.Go(func() { failed[i] = one(ctx) })
	}
	return func() error {
		cancel()
		group.Wait()
		return errors.Join(failed...)
	}
}
