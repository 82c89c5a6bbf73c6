package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

// environment is what a scenario runs in: a cluster with its load, and what has to be undone at the end. One
// goroutine uses it.
type environment struct {
	scenario *Scenario
	options  *Options
	dir      string
	servers  []*server // of the cluster that the doctor is asked of
	others   []*server // of clusters that it stores in: the doctor is asked with --also
	vault    *vault    // the secrets plane of the first server, in scenarios that have one
	syncs    *syncs    // of the PostgreSQL
	// endOutside ends what runs beside the clusters: the PostgreSQL, or the server that metrics go to.
	endOutside func()
	net        *netns.Net // in which each process is a host of its own; nil is this machine\'s
	quota      *quota     // of the proxy
	faulty     *server    // the one that steps are about
	load       load
	undo       []func()
	asked      asked
	story      *story // of the usage plane
}

// asked is how the doctor is asked.
type asked struct {
	alone bool    // of this cluster only
	agent *server // a client agent that is asked too; nil where the servers are a bench's own
}

// all are the processes of every cluster.
func (b *environment) all() []*server {
	all := slices.Concat(b.servers, b.others)
	if a := b.asked.agent; a != nil && !slices.Contains(all, a) {
		all = append(all, a)
	}
	return all
}

// server is one armed process.
type server struct {
	*harness.Server
	client *client.Client
	agent  bool
	of     *harness.Cluster // nil where it is a bench's own
}

// open starts the clusters and waits until every member serves.
func (b *environment) open(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "corbel-lab"); err != nil {
		return err
	}
	if b.scenario.prepare != nil {
		err = b.scenario.prepare(ctx, b)
	} else {
		b.servers, err = b.cluster(ctx, "server", b.size(), b.scenario.hcl...)
	}
	if err != nil {
		return err
	}
	return b.startAgent(ctx)
}

// startAgent starts a client agent of the cluster, unless it has some or cannot be joined.
func (b *environment) startAgent(ctx context.Context) error {
	if i := slices.IndexFunc(b.servers, func(s *server) bool { return s.agent }); i >= 0 {
		b.asked.agent = b.servers[i]
		return nil
	}
	of := b.servers[0].of
	if of == nil {
		return nil
	}
	a, err := b.agent(of, "agent-1", 0)
	if err != nil {
		return err
	}
	b.asked.agent = a
	return b.ready(ctx, a)
}

// agent starts a client agent of a cluster, in a network of namespaces on a host.
func (b *environment) agent(c *harness.Cluster, name string, host int) (*server, error) {
	a, err := c.Agent(name, host)
	if err != nil {
		return nil, err
	}
	s, err := known(a)
	if err != nil {
		return nil, err
	}
	s.agent = true
	return s, s.Start()
}

// known is a server with a client of its API.
func known(s *harness.Server) (*server, error) {
	reach := s.HTTP
	if !strings.HasPrefix(reach, "unix:") {
		reach = "http://" + reach
	}
	c, err := client.New(client.Config{Address: reach, Timeout: 10 * time.Second})
	return &server{Server: s, client: c}, err
}

// size is how many servers a cluster of the scenario has.
func (b *environment) size() int {
	if b.scenario.single {
		return 1
	}
	return max(b.options.Servers, 3)
}

// cluster starts servers that make a cluster, and waits until all serve. It returns those that were made also with an
// error.
func (b *environment) cluster(ctx context.Context, name string, size int, hcl ...string) (all []*server, err error) {
	c, err := harness.New(harness.Config{Binary: b.options.Binary, Dir: b.dir, Name: name, Servers: size, HCL: hcl,
		Monitor: b.net == nil, Net: b.net})
	if err != nil {
		return nil, err
	}
	for _, s := range c.Servers {
		one, err := known(s)
		if err != nil {
			return all, err
		}
		one.of = c
		all = append(all, one)
	}
	return all, errors.Join(c.Start(), c.Ready(ctx, startTime))
}

// ready waits until servers read consistently, which takes a leader that serves.
func (b *environment) ready(ctx context.Context, all ...*server) error {
	for _, s := range all {
		if err := harness.Of().Await(ctx, s.Server); err != nil {
			return err
		}
	}
	return nil
}

// leader is the server that leads the catalog.
func (b *environment) leader(ctx context.Context) (*server, error) { return leaderOf(ctx, b.servers) }

func leaderOf(ctx context.Context, all []*server) (*server, error) {
	c := harness.Of()
	for _, s := range all {
		c.Servers = append(c.Servers, s.Server)
	}
	leader, err := c.AwaitLeader(ctx, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return all[slices.Index(c.Servers, leader)], nil
}

// follower is a server that does not lead.
func (b *environment) follower(ctx context.Context) (*server, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range b.servers {
		if s != leader && s.Running() {
			return s, nil
		}
	}
	return nil, errors.New("the cluster has one server")
}

// askTime is how long a member may take to answer for all; it gives the others two seconds.
const askTime = 5 * time.Second

// ask gets a report from the first server that answers; with another cluster beside it as a person would: by corbel
// doctor --also.
func (b *environment) ask(ctx context.Context) (*doctor.Report, error) {
	return b.askFirst(ctx, b.servers)
}

// askAgent is ask through the client agent; nil where there is none.
func (b *environment) askAgent(ctx context.Context) (*doctor.Report, error) {
	if b.asked.agent == nil {
		return nil, nil
	}
	return b.askFirst(ctx, []*server{b.asked.agent})
}

func (b *environment) askFirst(ctx context.Context, all []*server) (*doctor.Report, error) {
	var errs []error
	for _, s := range all {
		var r doctor.Report
		one, cancel := context.WithTimeout(ctx, askTime)
		var err error
		if len(b.others) > 0 && !b.asked.alone {
			err = b.askWith(one, s, &r)
		} else {
			_, err = s.client.Get(one, "/v1/doctor", client.Query{}, &r)
		}
		cancel()
		if err == nil {
			return &r, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
	}
	return nil, errors.Join(errs...)
}

// askWith asks a member together with one of each other cluster's, the first that lives.
func (b *environment) askWith(ctx context.Context, s *server, into *doctor.Report) error {
	args := []string{"doctor", "--json", "--http-addr", s.HTTP}
	for _, o := range b.others {
		if o.Running() {
			args = append(args, "--also", "http://"+o.HTTP)
			break
		}
	}
	cmd := exec.CommandContext(ctx, b.options.Binary, args...)
	cmd.Env, cmd.SysProcAttr = harness.Environ(), spawn.DieWithParent()
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() > 2 {
		err = nil // a warning, or something critical
	}
	if err != nil {
		return fmt.Errorf("corbel doctor: %w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	return json.Unmarshal(out, into)
}

// save writes the evidence of all clusters.
func (b *environment) save(ctx context.Context, dir string) error {
	var all doctor.Cluster
	for i, servers := range [][]*server{b.servers, b.others} {
		for _, s := range servers {
			var c doctor.Cluster
			one, cancel := context.WithTimeout(ctx, askTime)
			_, err := s.client.Get(one, "/v1/doctor/evidence?cluster", client.Query{}, &c)
			cancel()
			if err != nil {
				continue
			}
			for _, e := range c.Members {
				if i > 0 {
					e.Cluster = s.HTTP
				}
				all.At, all.Members = c.At, append(all.Members, e)
			}
			all.Silent = append(all.Silent, c.Silent...)
			break
		}
	}
	text, err := json.Marshal(&all)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, fmt.Sprintf("%s-%s.json", b.scenario.Name, time.Now().Format("150405")))
	b.say("the evidence is in %s", file)
	return os.WriteFile(file, text, 0o600)
}

// later undoes something when the run ends, the last first.
func (b *environment) later(f func()) { b.undo = append(b.undo, f) }

// close stops the load, undoes what was done, and ends the servers.
func (b *environment) close() error {
	if b.load.stop != nil {
		b.load.stop()
	}
	for _, s := range b.all() {
		s.Kill()
	}
	for _, f := range slices.Backward(b.undo) {
		f()
	}
	b.load.Wait()
	var damage error
	for _, s := range b.all() {
		if s.client != nil {
			s.client.Close()
		}
		damage = errors.Join(damage, s.Damage())
	}
	return errors.Join(damage, os.RemoveAll(b.dir))
}
