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
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
)

// config opens the API to the load: no access rules, and connections without end from one address.
const config = `limits { http_max_conns_per_client = 100000 }
acl { enabled = false }
ports { serf_wan = -1 }`

// bed is the patient: a cluster with its load, and what has to be undone at the end. One goroutine uses it.
type bed struct {
	scenario *Scenario
	options  *Options
	dir      string
	servers  []*server // of the cluster that the doctor is asked of
	others   []*server // of clusters that it stores in: the doctor is asked with --also
	vault    *vault    // the secrets plane of the first server, in scenarios that have one
	syncs    *syncs    // of the PostgreSQL
	// endOutside ends what runs beside the clusters: the PostgreSQL, or the server that metrics go to.
	endOutside func()
	net        *netns.Net   // in which each process is a host of its own; nil is this machine\'s
	quota      *quota       // of the proxy
	failed     func() error // says that the load did not last
	sick       *server      // the one that steps are about
	stopLoad   context.CancelFunc
	loading    context.Context // until the load ends
	load       sync.WaitGroup
	undo       []func()
	asked      asked
}

// asked is how the doctor is asked.
type asked struct {
	alone bool    // of this cluster only
	agent *server // a client agent that is asked too; nil where the servers are a bench's own
}

// all are the processes of every cluster.
func (b *bed) all() []*server {
	all := slices.Concat(b.servers, b.others)
	if a := b.asked.agent; a != nil && !slices.Contains(all, a) {
		all = append(all, a)
	}
	return all
}

// server is one armed process.
type server struct {
	name, http, rpc, serf, monitor, agents string
	control                                *fault.Control
	client                                 *client.Client
	ended                                  chan struct{}
	output                                 *spawn.Tail
	extra                                  []string // configuration of its own
	agent                                  bool
	host                                   int // its number in bed.net, where that is
}

// open starts the clusters and waits until every member serves.
func (b *bed) open(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "corbel-lab"); err != nil {
		return err
	}
	if b.scenario.prepare != nil {
		err = b.scenario.prepare(ctx, b)
	} else {
		b.servers, err = b.cluster(ctx, "server", b.scenario.servers(), b.scenario.hcl...)
	}
	if err != nil {
		return err
	}
	return b.startAgent(ctx)
}

// startAgent starts a client agent of the cluster, unless it has some or cannot be joined.
func (b *bed) startAgent(ctx context.Context) error {
	if i := slices.IndexFunc(b.servers, func(s *server) bool { return s.agent }); i >= 0 {
		b.asked.agent = b.servers[i]
		return nil
	}
	if b.servers[0].serf == "" {
		return nil
	}
	a, err := newServer("agent-1")
	if err != nil {
		return err
	}
	a.agent, b.asked.agent = true, a
	var join []string
	for _, s := range b.servers {
		join = append(join, "-retry-join", s.serf)
	}
	if err := b.start(a, join); err != nil {
		return err
	}
	return b.ready(ctx, []*server{a})
}

// newServer is a process that is to listen on free ports of loopback.
func newServer(name string, hcl ...string) (*server, error) {
	ports, err := testport.Free(5)
	if err != nil {
		return nil, err
	}
	s := &server{name: name, output: &spawn.Tail{}, extra: hcl}
	for i, field := range []*string{&s.http, &s.rpc, &s.serf, &s.monitor, &s.agents} {
		*field = "127.0.0.1:" + strconv.Itoa(ports[i])
	}
	return s, nil
}

// cluster starts servers that make a cluster, and waits until all serve. It returns those that were made also with an
// error.
func (b *bed) cluster(ctx context.Context, name string, size int, hcl ...string) ([]*server, error) {
	var all []*server
	var join []string
	for i := range size {
		s, err := newServer(fmt.Sprintf("%s-%d", name, i+1), hcl...)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		join = append(join, "-retry-join", s.serf)
	}
	join = append(join, "-bootstrap-expect", strconv.Itoa(size))
	for _, s := range all {
		if err := b.start(s, join); err != nil {
			return all, err
		}
	}
	return all, b.ready(ctx, all)
}

// kill ends a server that was started.
func (s *server) kill() {
	if s.ended != nil {
		_ = s.control.Kill()
		<-s.ended
	}
}

func (b *bed) start(s *server, join []string) (err error) {
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	role, bind, reach := "server", "127.0.0.1", "http://"+s.http
	if s.agent {
		role = "agent"
	}
	args := []string{"-node", s.name, "-data-dir", filepath.Join(b.dir, s.name), "-log-level", "warn", "-dns-port", "-1",
		"-hcl", config,
		"-server-port", port(s.rpc), "-serf-lan-port", port(s.serf)}
	if b.net != nil {
		bind, reach = b.net.IP(s.host), s.http
		args = append(args, "-hcl", fmt.Sprintf("addresses { http = %q }\ntls { disabled = true "+
			"}\nallow_unencrypted_gossip = true", s.http))
	} else {
		args = append(args, "-http-port", port(s.http), "-hcl", fmt.Sprintf("ports { monitor = %s\n monitor_agents = %s }",
			port(s.monitor), port(s.agents)))
	}
	args = slices.Concat([]string{role}, args, []string{"-bind", bind}, join)
	for _, text := range s.extra {
		args = append(args, "-hcl", text)
	}
	cmd := exec.Command(b.options.Binary, args...)
	if b.net != nil {
		cmd = b.net.Command(context.Background(), s.host, b.options.Binary, args...)
	}
	cmd.Dir, cmd.Env = b.dir, plainEnv()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = s.output, s.output, spawn.DieWithParent()
	if s.client, err = client.New(client.Config{Address: reach, Timeout: 10 * time.Second}); err != nil {
		return err
	}
	if s.control, err = fault.Spawn(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.ended = make(chan struct{})
	go func() { // ends with the process, which close kills
		defer close(s.ended)
		_ = cmd.Wait()
		_ = s.control.Close()
	}()
	return nil
}

// ready waits until all members read consistently, which takes a leader that serves.
func (b *bed) ready(ctx context.Context, all []*server) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for _, s := range all {
		for {
			_, err := s.client.Get(ctx, "/v1/catalog/nodes", client.Query{Consistent: true}, new([]any))
			if err == nil {
				break
			}
			select {
			case <-s.ended:
				return fmt.Errorf("%s ended while starting:\n%s", s.name, s.output)
			default:
			}
			if sleep(ctx, 50*time.Millisecond) != nil {
				return fmt.Errorf("%s does not serve within %s: %w\n%s", s.name, startTime, err, s.output)
			}
		}
	}
	return nil
}

// leader is the server that leads the catalog.
func (b *bed) leader(ctx context.Context) (*server, error) { return leaderOf(ctx, b.servers) }

func leaderOf(ctx context.Context, all []*server) (*server, error) {
	for range 100 {
		for _, s := range all {
			var addr string
			if _, err := s.client.Get(ctx, "/v1/status/leader", client.Query{}, &addr); err != nil {
				continue
			}
			for _, l := range all {
				if l.rpc == addr {
					return l, nil
				}
			}
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no server leads")
}

// follower is a server that does not lead.
func (b *bed) follower(ctx context.Context) (*server, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range b.servers {
		if s != leader {
			return s, nil
		}
	}
	return nil, errors.New("the cluster has one server")
}

// askTime is how long a member may take to answer for all; it gives the others two seconds.
const askTime = 5 * time.Second

// ask gets a report from the first server that answers; with another cluster beside it as a person would: by corbel
// doctor --also.
func (b *bed) ask(ctx context.Context) (*doctor.Report, error) { return b.askFirst(ctx, b.servers) }

// askAgent is ask through the client agent; nil where there is none.
func (b *bed) askAgent(ctx context.Context) (*doctor.Report, error) {
	if b.asked.agent == nil {
		return nil, nil
	}
	return b.askFirst(ctx, []*server{b.asked.agent})
}

func (b *bed) askFirst(ctx context.Context, all []*server) (*doctor.Report, error) {
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
		errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
	}
	return nil, errors.Join(errs...)
}

// askWith asks a member together with one of each other cluster's, the first that lives.
func (b *bed) askWith(ctx context.Context, s *server, into *doctor.Report) error {
	args := []string{"doctor", "--json", "--http-addr", s.http}
	for _, o := range b.others {
		if o.lives() {
			args = append(args, "--also", "http://"+o.http)
			break
		}
	}
	cmd := exec.CommandContext(ctx, b.options.Binary, args...)
	cmd.Env, cmd.SysProcAttr = plainEnv(), spawn.DieWithParent()
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
func (b *bed) save(ctx context.Context, dir string) error {
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
					e.Cluster = s.http
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

// lives reports whether a server's process runs.
func (s *server) lives() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// plainEnv is the environment without what would change a corbel that is started.
func plainEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CORBEL_") || strings.HasPrefix(v, "CONSUL_") || strings.HasPrefix(v, "VAULT_")
	})
}

// later undoes something when the run ends, the last first.
func (b *bed) later(f func()) { b.undo = append(b.undo, f) }

// close stops the load, undoes what was done, and ends the servers.
func (b *bed) close() error {
	if b.stopLoad != nil {
		b.stopLoad()
	}
	for _, s := range b.all() {
		s.kill()
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
		if text := s.output.String(); strings.Contains(text, "panic:") || strings.Contains(text, "fatal error:") {
			damage = errors.Join(damage, fmt.Errorf("%s broke:\n%s", s.name, text))
		}
	}
	return errors.Join(damage, os.RemoveAll(b.dir))
}
