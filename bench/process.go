package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/spawn"
)

// process is a child that the bench started and will stop.
type process struct {
	cmd  *exec.Cmd
	tail *spawn.Tail
	done chan struct{}
	err  error
}

func newProcess(binary string, args []string, dir string, env []string) *process {
	p := &process{cmd: exec.Command(binary, args...), tail: &spawn.Tail{}, done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.tail, p.tail
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = spawn.DieWithParent()
	return p
}

func startProcess(binary string, args []string, dir string, env []string) (*process, error) {
	p := newProcess(binary, args, dir, env)
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

// startPiped starts a child whose standard input and output are the caller's.
func startPiped(binary string, args []string, dir string, env []string) (*process, io.WriteCloser,
	io.ReadCloser, error) {
	p := newProcess(binary, args, dir, env)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	// A pipe of our own: Wait closes StdoutPipe's before the last answer is read.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = theirs.Close() }()
	p.cmd.Stdout = theirs
	if err := p.start(); err != nil {
		return nil, nil, nil, err
	}
	return p, in, out, nil
}

func (p *process) start() error {
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", strings.Join(p.cmd.Args, " "), err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return nil
}

// kill ends the process at once and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the process to leave and kills it after ten seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

// rssBytes reads the resident size of the process; zero where the system does not tell.
func (p *process) rssBytes() int64 { return p.statusBytes("VmRSS") }

// peakBytes is the largest resident size that it ever had.
func (p *process) peakBytes() int64 { return p.statusBytes("VmHWM") }

func (p *process) statusBytes(field string) int64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		var kib int64
		if _, err := fmt.Sscanf(line, field+": %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// cpuSeconds is the processor time that it took so far, in user mode and in the kernel.
func (p *process) cpuSeconds() float64 {
	if s := p.cmd.ProcessState; s != nil { // it has ended
		return (s.UserTime() + s.SystemTime()).Seconds()
	}
	if t, ok := processTime(p.cmd.Process.Pid); ok {
		return t.Seconds()
	}
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // behind the command's name
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	const ticksPerSecond = 100 // USER_HZ: the same on every Linux that Go runs on
	return (user + system) / ticksPerSecond
}

// waitHTTP polls path until good accepts an answer, the process ends, or 30 s are over.
func waitHTTP(ctx context.Context, p *process, addr, path string, good func(status int, body string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	raw := request("GET", addr, path, "", nil)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	last := "no answer yet"
	for {
		if c, err := dialWire(ctx, addr, 4096); err == nil {
			r, err := c.do(raw, true, 5*time.Second)
			if err == nil && good(r.status, string(r.body)) {
				return c.Close()
			}
			last = fmt.Sprintf("status %d, body %.80q, error %v", r.status, r.body, err)
			_ = c.Close()
		} else {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for http://%s%s: %w (last: %s)\n%s", addr, path, ctx.Err(), last, tailOf(p))
		case <-exited(p):
			return fmt.Errorf("the server ended while starting: %w\n%s", p.err, p.tail)
		case <-tick.C:
		}
	}
}

func exited(p *process) <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.done
}

func tailOf(p *process) string {
	if p == nil {
		return ""
	}
	return p.tail.String()
}

// server is one started corbel server and where it answers.
type server struct {
	proc     *process
	args     []string
	dir      string
	httpAddr string
	dnsAddr  string
	rpcAddr  string
}

// cluster is what a bench runs against: started servers, or one given target.
type cluster struct {
	opts    *Options
	servers []*server
	dir     string
	http    string // the leader's HTTP address, or the target
	dns     string
}

// openCluster starts the servers that the options ask for, or takes the target.
func openCluster(ctx context.Context, o *Options) (*cluster, error) {
	c := &cluster{opts: o, http: o.Target, dns: o.DNSTarget}
	if o.Target != "" {
		return c, waitHTTP(ctx, nil, o.Target, "/v1/status/leader", hasLeader)
	}
	dir, err := os.MkdirTemp(o.KeepDir, "corbel-bench")
	if err != nil {
		return nil, err
	}
	c.dir = dir
	o.say("starting %d server(s), data in %s ...", o.Servers, dir)
	if err := c.start(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func hasLeader(status int, body string) bool {
	return status == 200 && len(strings.Trim(body, "\"\n ")) > 0
}

// benchConfig is what started servers need beside their ports: many connections
// from one address, and no tokens, as in the runs that they are compared with.
const benchConfig = `limits { http_max_conns_per_client = 100000 } acl { enabled = false } enable_debug = true`

func (c *cluster) start(ctx context.Context) error {
	var join []string
	for i := range c.opts.Servers {
		ports, err := freePorts(4)
		if err != nil {
			return err
		}
		dir := filepath.Join(c.dir, fmt.Sprintf("server-%d", i+1))
		args := []string{"server", "-node", fmt.Sprintf("server-%d", i+1), "-data-dir", dir, "-bind", "127.0.0.1",
			"-bootstrap-expect", strconv.Itoa(c.opts.Servers), "-log-level", "warn", "-hcl", benchConfig,
			"-http-port", ports[0], "-dns-port", ports[1], "-server-port", ports[2], "-serf-lan-port", ports[3]}
		for _, addr := range join {
			args = append(args, "-retry-join", addr)
		}
		join = append(join, "127.0.0.1:"+ports[3])
		args = append(args, c.opts.ServerArgs...)
		if c.opts.perServer != nil {
			own, err := c.opts.perServer()
			if err != nil {
				return err
			}
			args = append(args, own...)
		}
		c.servers = append(c.servers, &server{args: args, dir: dir,
			httpAddr: "127.0.0.1:" + ports[0], dnsAddr: "127.0.0.1:" + ports[1], rpcAddr: "127.0.0.1:" + ports[2]})
	}
	for _, s := range c.servers {
		if err := c.launch(s); err != nil {
			return err
		}
	}
	return c.waitLeader(ctx)
}

func (c *cluster) launch(s *server) (err error) {
	s.proc, err = startProcess(c.opts.Binary, s.args, c.dir, nil)
	return err
}

// waitLeader waits until every server knows a leader and finds the leader's HTTP address.
func (c *cluster) waitLeader(ctx context.Context) error {
	for _, s := range c.servers {
		if err := waitHTTP(ctx, s.proc, s.httpAddr, "/v1/status/leader", hasLeader); err != nil {
			return err
		}
	}
	for _, s := range c.servers {
		if err := waitHTTP(ctx, s.proc, s.httpAddr, "/v1/health/service/consul?passing", func(status int, body string) bool {
			return status == 200 && strings.Count(body, `"Service":{"ID":"consul"`) >= len(c.servers)
		}); err != nil {
			return err
		}
	}
	c.http, c.dns = c.servers[0].httpAddr, c.servers[0].dnsAddr
	for _, s := range c.servers {
		if isLeader(ctx, s) {
			c.http, c.dns = s.httpAddr, s.dnsAddr
		}
	}
	return nil
}

func isLeader(ctx context.Context, s *server) bool {
	conn, err := dialWire(ctx, s.httpAddr, 64<<10)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	r, err := conn.do(request("GET", s.httpAddr, "/v1/agent/self", "", nil), true, ioDeadline)
	return err == nil && strings.Contains(string(r.body), `"leader":"true"`)
}

// follower returns a started server that does not lead, or nil.
func (c *cluster) follower() *server {
	for _, s := range c.servers {
		if s.httpAddr != c.http {
			return s
		}
	}
	return nil
}

// rssBytes is the resident size of the server that answers, zero for a given target.
func (c *cluster) rssBytes() int64 {
	for _, s := range c.servers {
		if s.httpAddr == c.http {
			return s.proc.rssBytes()
		}
	}
	return 0
}

// close stops the started servers and removes their data.
func (c *cluster) close() {
	for _, s := range c.servers {
		if s.proc != nil {
			s.proc.stop()
		}
	}
	if c.dir != "" && c.opts.KeepDir == "" {
		_ = os.RemoveAll(c.dir)
	}
}

// freePorts returns ports that were free a moment ago, all different.
func freePorts(n int) ([]string, error) {
	var ports []string
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		open = append(open, l)
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
