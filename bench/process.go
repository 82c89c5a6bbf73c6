package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/childcall"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

func StartProcess(binary string, args []string, dir string) (*spawn.Process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	return spawn.Run(cmd)
}

// Child is a process of ours that takes calls.
type Child struct {
	Proc  *spawn.Process
	Calls *childcall.Caller
	First int // of its hosts, and how many
	Count int
}

// StartChild starts a hidden command of the binary that takes calls.
func StartChild(binary, dir string, args ...string) (*Child, error) {
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
	return &Child{Proc: proc, Calls: childcall.NewCaller(in, out)}, nil
}

// CallMost bounds a call that starts nothing large.
const CallMost = time.Minute

// Call asks the child, and tells what it printed when the line broke.
func (c *Child) Call(ctx context.Context, most time.Duration, method string, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := c.Calls.Call(ctx, method, body, result); err != nil {
		return fmt.Errorf("%w\n%s", err, c.Proc.Log())
	}
	return nil
}

// Close ends the child: it does so by itself when its line is closed.
func (c *Child) Close() {
	_ = c.Calls.Close()
	_ = c.Proc.End(nil, 10*time.Second)
}

// WaitHTTP polls path until good accepts an answer, the process (if one is given) ends, or 30 s are over.
func WaitHTTP(ctx context.Context, p *spawn.Process, addr, path string, good func(status int, body string) bool) error {
	raw := Request("GET", addr, path, "", nil)
	return spawn.Until(ctx, 30*time.Second, "http://"+addr+path, func() error {
		if p != nil && !p.Running() {
			return spawn.Hopeless(fmt.Errorf("the server ended: %w\n%s", p.Err(), p.Log()))
		}
		c, err := DialWire(ctx, addr, 4096)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		r, err := c.Do(raw, true, 5*time.Second)
		if err == nil && !good(r.Status, string(r.Body)) {
			err = fmt.Errorf("status %d, body %.80q", r.Status, r.Body)
		}
		return err
	})
}

// OK accepts an answer with status 200.
func OK(status int, _ string) bool { return status == 200 }

// Target is what a bench runs against: started servers, or what was given.
type Target struct {
	*harness.Cluster // nil with a target
	Opts             *Options
	Dir              string
	HTTP             string // the leader's HTTP address, or the target
	dns              string
}

// OpenTarget starts the servers that the options ask for, or takes the target.
func OpenTarget(ctx context.Context, o *Options) (*Target, error) {
	c := &Target{Opts: o, HTTP: o.Target, dns: o.DNSTarget}
	if o.Target != "" {
		return c, WaitHTTP(ctx, nil, o.Target, "/v1/status/leader", hasLeader)
	}
	var err error
	if c.Dir, err = os.MkdirTemp(o.KeepDir, "corbel-bench"); err != nil {
		return nil, err
	}
	o.Say("starting %d server(s), data in %s ...", o.Servers, c.Dir)
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func hasLeader(status int, body string) bool {
	return status == 200 && len(strings.Trim(body, "\"\n ")) > 0
}

func (c *Target) start(ctx context.Context) (err error) {
	o := c.Opts
	hcl := append([]string{"enable_debug = true"}, o.HCL...)
	if c.Cluster, err = harness.New(harness.Config{Binary: o.Binary, Dir: c.Dir, Servers: o.Servers, HCL: hcl,
		Args: o.ServerArgs, Monitor: o.Monitor, DNS: true, Plain: true}); err != nil {
		return err
	}
	if err := errors.Join(c.Start(), c.Ready(ctx, harness.StartLimit)); err != nil {
		return err
	}
	for _, s := range c.Servers {
		if err := WaitHTTP(ctx, s.Process, s.HTTP, "/v1/health/service/consul?passing", func(status int, body string) bool {
			return status == 200 && strings.Count(body, `"Service":{"ID":"consul"`) >= len(c.Servers)
		}); err != nil {
			return err
		}
	}
	leader, err := c.AwaitLeader(ctx, harness.StartLimit)
	if err == nil {
		c.HTTP, c.dns = leader.HTTP, leader.DNS
	}
	return err
}

// Started are the servers of the bench's own.
func (c *Target) Started() []*harness.Server {
	if c == nil || c.Cluster == nil {
		return nil
	}
	return c.Servers
}

// leader is the started server that answers, nil for a given target.
func (c *Target) leader() *harness.Server {
	if i := slices.IndexFunc(c.Started(), func(s *harness.Server) bool { return s.HTTP == c.HTTP }); i >= 0 {
		return c.Servers[i]
	}
	return nil
}

// follower returns a started server that does not lead, or nil.
func (c *Target) follower() *harness.Server {
	if i := slices.IndexFunc(c.Started(), func(s *harness.Server) bool { return s.HTTP != c.HTTP }); i >= 0 {
		return c.Servers[i]
	}
	return nil
}

// rssBytes is the resident size of the server that answers, zero for a given target.
func (c *Target) rssBytes() int64 {
	if s := c.leader(); s != nil {
		return s.RSS()
	}
	return 0
}

// Close stops the started servers and removes their data.
func (c *Target) Stop() {
	for _, s := range c.Started() {
		_ = s.Stop()
	}
	if c.Dir != "" && c.Opts.KeepDir == "" {
		_ = os.RemoveAll(c.Dir)
	}
}

// WrittenBytes is what a process had the kernel write to disks so far; zero where the system does not tell.
func WrittenBytes(pid int) int64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if text, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			v, _ := strconv.ParseInt(text, 10, 64) // zero where the system says something else
			return v
		}
	}
	return 0
}
