package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/childcall"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

func startProcess(binary string, args []string, dir string) (*spawn.Process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	return spawn.Run(cmd)
}

// child is a process of ours that takes calls.
type child struct {
	proc  *spawn.Process
	calls *childcall.Caller
	first int // of its hosts, and how many
	count int
}

// startChild starts a hidden command of the binary that takes calls.
func startChild(binary, dir string, args ...string) (*child, error) {
	cmd := exec.Command(binary, append([]string{"bench"}, args...)...)
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of our own: Wait closes StdoutPipe's before the last answer is read.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	cmd.Stdout = theirs
	proc, err := spawn.Run(cmd)
	if err != nil {
		return nil, err
	}
	return &child{proc: proc, calls: childcall.NewCaller(in, out)}, nil
}

// callMost bounds a call that starts nothing large.
const callMost = time.Minute

// call asks the child, and tells what it printed when the line broke.
func (c *child) call(ctx context.Context, most time.Duration, method string, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := c.calls.Call(ctx, method, body, result); err != nil {
		return fmt.Errorf("%w\n%s", err, c.proc.Log())
	}
	return nil
}

// close ends the child: it does so by itself when its line is closed.
func (c *child) close() {
	_ = c.calls.Close()
	_ = c.proc.End(nil, 10*time.Second)
}

// waitHTTP polls path until good accepts an answer, the process (if one is given) ends, or 30 s are over.
func waitHTTP(ctx context.Context, p *spawn.Process, addr, path string, good func(status int, body string) bool) error {
	raw := request("GET", addr, path, "", nil)
	return spawn.Until(ctx, 30*time.Second, "http://"+addr+path, func() error {
		if p != nil && !p.Running() {
			return spawn.Hopeless(fmt.Errorf("the server ended: %w\n%s", p.Err(), p.Log()))
		}
		c, err := dialWire(ctx, addr, 4096)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		r, err := c.do(raw, true, 5*time.Second)
		if err == nil && !good(r.status, string(r.body)) {
			err = fmt.Errorf("status %d, body %.80q", r.status, r.body)
		}
		return err
	})
}

// ok accepts an answer with status 200.
func ok(status int, _ string) bool { return status == 200 }

// target is what a bench runs against: started servers, or what was given.
type target struct {
	*harness.Cluster // nil with a target
	opts             *Options
	dir              string
	http             string // the leader's HTTP address, or the target
	dns              string
}

// openTarget starts the servers that the options ask for, or takes the target.
func openTarget(ctx context.Context, o *Options) (*target, error) {
	c := &target{opts: o, http: o.Target, dns: o.DNSTarget}
	if o.Target != "" {
		return c, waitHTTP(ctx, nil, o.Target, "/v1/status/leader", hasLeader)
	}
	var err error
	if c.dir, err = os.MkdirTemp(o.KeepDir, "corbel-bench"); err != nil {
		return nil, err
	}
	o.say("starting %d server(s), data in %s ...", o.Servers, c.dir)
	if err := c.start(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func hasLeader(status int, body string) bool {
	return status == 200 && len(strings.Trim(body, "\"\n ")) > 0
}

func (c *target) start(ctx context.Context) (err error) {
	o := c.opts
	hcl := append([]string{"enable_debug = true"}, o.hcl...)
	if c.Cluster, err = harness.New(harness.Config{Binary: o.Binary, Dir: c.dir, Servers: o.Servers, HCL: hcl,
		Args: o.ServerArgs, Monitor: o.monitor, DNS: true, Plain: true}); err != nil {
		return err
	}
	if err := errors.Join(c.Start(), c.Ready(ctx, harness.StartLimit)); err != nil {
		return err
	}
	for _, s := range c.Servers {
		if err := waitHTTP(ctx, s.Process, s.HTTP, "/v1/health/service/consul?passing", func(status int, body string) bool {
			return status == 200 && strings.Count(body, `"Service":{"ID":"consul"`) >= len(c.Servers)
		}); err != nil {
			return err
		}
	}
	leader, err := c.AwaitLeader(ctx, harness.StartLimit)
	if err == nil {
		c.http, c.dns = leader.HTTP, leader.DNS
	}
	return err
}

// started are the servers of the bench's own.
func (c *target) started() []*harness.Server {
	if c == nil || c.Cluster == nil {
		return nil
	}
	return c.Servers
}

// leader is the started server that answers, nil for a given target.
func (c *target) leader() *harness.Server {
	if i := slices.IndexFunc(c.started(), func(s *harness.Server) bool { return s.HTTP == c.http }); i >= 0 {
		return c.Servers[i]
	}
	return nil
}

// follower returns a started server that does not lead, or nil.
func (c *target) follower() *harness.Server {
	if i := slices.IndexFunc(c.started(), func(s *harness.Server) bool { return s.HTTP != c.http }); i >= 0 {
		return c.Servers[i]
	}
	return nil
}

// rssBytes is the resident size of the server that answers, zero for a given target.
func (c *target) rssBytes() int64 {
	if s := c.leader(); s != nil {
		return s.RSS()
	}
	return 0
}

// close stops the started servers and removes their data.
func (c *target) close() {
	for _, s := range c.started() {
		_ = s.Stop()
	}
	if c.dir != "" && c.opts.KeepDir == "" {
		_ = os.RemoveAll(c.dir)
	}
}
