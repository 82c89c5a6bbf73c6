// Package harness starts real `corbel server` processes that make one cluster, and agents beside them: their folders,
// ports and command lines, the wait until all serve, who leads, and their end. Benches, the lab and the fault tests
// drive their clusters with it.
//
// A Cluster is driven by one goroutine. Its processes end with the driver (on Linux), or in Close.
package harness

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
)

// Config says what cluster to make.
type Config struct {
	// Binary is the corbel to start, Dir the folder of everything; Close removes it.
	Binary, Dir string
	// Name of the members, which a number follows; "" is server.
	Name    string
	Servers int
	// HCL is configuration beside Base, Args are further arguments, Env is added to the processes' environment.
	HCL, Args, Env []string
	// Each returns configuration of one server.
	Each func(s *Server, i int) []string
	// Mesh opens a port for Envoys on each server, Monitor gives the monitor plane its ports, DNS opens that port.
	Mesh, Monitor, DNS bool
	// Plain starts processes without the door for faults, as they are measured.
	Plain bool
	// Power gives the servers disks that lose their power (spawn.Process.Crash).
	Power bool
	// Net, when set, puts each process into its own network namespace; HTTP is then reached through a unix socket, which
	// no namespace hides.
	Net *netns.Net
}

// Base opens the API to the driver: no access rules, and connections without end from one address.
const Base = `limits { http_max_conns_per_client = 100000 }
acl { enabled = false }
ports { serf_wan = -1 }`

// StartLimit is how long a cluster may take until it serves, on a busy machine.
const StartLimit = 90 * time.Second

// Server is one member: a process, its folder and its addresses.
type Server struct {
	*spawn.Process
	Dir string
	// HTTP, RPC, Serf, GRPC, DNS and the monitor plane's Monitor (API) and Agents are host:port. In a network of
	// namespaces HTTP is unix://path.
	HTTP, RPC, Serf, GRPC, DNS, Monitor, Agents string
	// Host is its number in Config.Net.
	Host int
	// Args are its command line without the program.
	Args []string
}

// Cluster is some servers and their folder.
type Cluster struct {
	Servers []*Server

	cfg    Config
	client *http.Client
}

// Of drives processes that somebody else laid out.
func Of(servers ...*Server) *Cluster {
	return &Cluster{Servers: servers, client: &http.Client{Timeout: askTime,
		Transport: &http.Transport{DialContext: Dial, MaxIdleConnsPerHost: 4, IdleConnTimeout: 10 * time.Second}}}
}

// New lays a cluster out without starting it.
func New(cfg Config) (*Cluster, error) {
	c := Of()
	c.cfg = cfg
	if c.cfg.Name == "" {
		c.cfg.Name = "server"
	}
	for i := range cfg.Servers {
		s, err := c.member(fmt.Sprintf("%s-%d", c.cfg.Name, i+1), i)
		if err != nil {
			return nil, err
		}
		c.Servers = append(c.Servers, s)
	}
	for i, s := range c.Servers {
		c.arm(s, "server", c.serverArgs(s, i))
	}
	return c, nil
}

// Agent lays out a client agent beside the servers; in a network of namespaces it lives on a host.
func (c *Cluster) Agent(name string, host int) (*Server, error) {
	s, err := c.member(name, host)
	if err == nil {
		c.arm(s, "agent", c.join())
	}
	return s, err
}

// member gives a process its addresses.
func (c *Cluster) member(name string, host int) (*Server, error) {
	s := &Server{Process: &spawn.Process{Name: name, Plain: c.cfg.Plain}, Dir: filepath.Join(c.cfg.Dir, name), Host: host}
	if c.cfg.Net != nil {
		ip := c.cfg.Net.IP(host)
		s.HTTP, s.RPC, s.Serf = "unix://"+filepath.Join(c.cfg.Dir, name+".sock"), ip+":8300", ip+":8301"
		return s, nil
	}
	fields := []*string{&s.HTTP, &s.RPC, &s.Serf, &s.GRPC, &s.DNS, &s.Monitor, &s.Agents}
	ports, err := testport.Free(len(fields))
	if err != nil {
		return nil, err
	}
	for i, field := range fields {
		*field = "127.0.0.1:" + strconv.Itoa(ports[i])
	}
	return s, nil
}

// arm makes a member's command line.
func (c *Cluster) arm(s *Server, role string, more []string) {
	host, rpc, _ := net.SplitHostPort(s.RPC)
	dns := "-1"
	if c.cfg.DNS {
		dns = portOf(s.DNS)
	}
	s.Args = []string{role, "-node", s.Name, "-data-dir", s.Dir, "-bind", host, "-log-level", "warn", "-dns-port", dns,
		"-server-port", rpc, "-serf-lan-port", portOf(s.Serf), "-hcl", Base}
	if c.cfg.Net != nil {
		s.Args = append(s.Args, "-hcl", fmt.Sprintf("addresses { http = %q }\ntls { disabled = true }\n"+
			"allow_unencrypted_gossip = true", s.HTTP))
	} else {
		s.Args = append(s.Args, "-http-port", portOf(s.HTTP))
	}
	s.Args = append(s.Args, more...)
	s.Command = func() *exec.Cmd {
		cmd := exec.Command(c.cfg.Binary, s.Args...)
		if c.cfg.Net != nil {
			cmd = c.cfg.Net.Command(context.Background(), s.Host, c.cfg.Binary, s.Args...)
		}
		cmd.Dir, cmd.Env = c.cfg.Dir, append(Environ(), c.cfg.Env...)
		return cmd
	}
}

func (c *Cluster) serverArgs(s *Server, i int) []string {
	if c.cfg.Power {
		s.Powered = s.Dir
	}
	args := append([]string{"-bootstrap-expect", strconv.Itoa(c.cfg.Servers)}, c.join()...)
	if c.cfg.Mesh {
		args = append(args, "-grpc-port", portOf(s.GRPC))
	}
	hcl := slices.Clone(c.cfg.HCL)
	if c.cfg.Monitor {
		hcl = append(hcl, fmt.Sprintf("ports { monitor = %s, monitor_agents = %s }", portOf(s.Monitor), portOf(s.Agents)))
	}
	if c.cfg.Each != nil {
		hcl = append(hcl, c.cfg.Each(s, i)...)
	}
	for _, text := range hcl {
		args = append(args, "-hcl", text)
	}
	return append(args, c.cfg.Args...)
}

func (c *Cluster) join() (args []string) {
	for _, s := range c.Servers {
		args = append(args, "-retry-join", s.Serf)
	}
	return args
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// Environ is the environment without what would change a corbel that is started.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CORBEL_") || strings.HasPrefix(v, "CONSUL_") || strings.HasPrefix(v, "VAULT_")
	})
}

// askTime bounds one question of the driver.
const askTime = 5 * time.Second

// Dial connects to a host:port, or to the unix socket whose path URL wrote as a host.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: time.Second}
	if name, ok := strings.CutSuffix(addr, socketSuffix+":80"); ok {
		path, err := hex.DecodeString(name)
		if err != nil {
			return nil, err
		}
		return d.DialContext(ctx, "unix", string(path))
	}
	return d.DialContext(ctx, network, addr)
}

const socketSuffix = ".socket"

// URL is the address of a path at host:port or unix://path, for a client that connects with Dial.
func URL(addr, path string) string {
	if socket, ok := strings.CutPrefix(addr, "unix://"); ok {
		addr = hex.EncodeToString([]byte(socket)) + socketSuffix
	}
	return "http://" + addr + path
}

// Ask sends one request to a member's API and returns the answer; one that is not 200 is an error too.
func (c *Cluster) Ask(ctx context.Context, s *Server, method, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, URL(s.HTTP, path), strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: status %d: %.200s", method, path, resp.StatusCode, bytes.TrimSpace(raw))
	}
	return string(raw), err
}

// Start starts the servers that do not run, with their data.
func (c *Cluster) Start() error {
	for _, s := range c.Servers {
		if !s.Running() {
			if err := s.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ready waits until every running server serves.
func (c *Cluster) Ready(ctx context.Context, limit time.Duration) error {
	return spawn.Until(ctx, limit, "every running member serves", func() error {
		if len(c.Running()) == 0 {
			return spawn.Hopeless(fmt.Errorf("all ended:\n%s", c.Logs()))
		}
		for _, s := range c.Running() {
			if err := c.Serves(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		return nil
	})
}

// Await waits until one member serves that was just started.
func (c *Cluster) Await(ctx context.Context, s *Server) error {
	return spawn.Until(ctx, StartLimit, s.Name+" serves", func() error {
		if s.Ended() != nil && !s.Running() {
			return spawn.Hopeless(fmt.Errorf("it ended: %w\n%s", s.Err(), s.Log()))
		}
		return c.Serves(ctx, s)
	})
}

// Serves asks a member whether it knows a leader whose lease answers reads.
func (c *Cluster) Serves(ctx context.Context, s *Server) error {
	addr, err := c.leaderOf(ctx, s)
	if err == nil && addr == "" {
		err = errors.New("no leader is known")
	}
	if err != nil {
		return err
	}
	_, err = c.Ask(ctx, s, "GET", "/v1/catalog/nodes?consistent", "")
	return err
}

// Running are the servers whose processes live.
func (c *Cluster) Running() []*Server {
	return slices.DeleteFunc(slices.Clone(c.Servers), func(s *Server) bool { return !s.Running() })
}

func (c *Cluster) leaderOf(ctx context.Context, s *Server) (addr string, err error) {
	text, err := c.Ask(ctx, s, "GET", "/v1/status/leader", "")
	if err == nil {
		err = json.Unmarshal([]byte(text), &addr)
	}
	return addr, err
}

// Leader returns the member that leads now, nil when none is known to. It asks each member itself, so that a
// partition's former leader does not win.
func (c *Cluster) Leader(ctx context.Context) *Server {
	for _, s := range c.Running() {
		if s.Frozen() {
			continue
		}
		if addr, err := c.leaderOf(ctx, s); err != nil || addr != s.RPC {
			continue
		}
		if _, err := c.Ask(ctx, s, "GET", "/v1/catalog/nodes?consistent", ""); err == nil {
			return s
		}
	}
	return nil
}

// AwaitLeader is Leader with patience.
func (c *Cluster) AwaitLeader(ctx context.Context, limit time.Duration) (*Server, error) {
	var found *Server
	err := spawn.Until(ctx, limit, "a leader", func() error {
		if found = c.Leader(ctx); found == nil {
			return errors.New("none")
		}
		return nil
	})
	return found, err
}

// Followers are the running members beside leader.
func (c *Cluster) Followers(leader *Server) []*Server {
	return slices.DeleteFunc(c.Running(), func(s *Server) bool { return s == leader })
}

// Peers are running members as fault.Partition takes them.
func Peers(of ...*Server) []fault.Peer {
	var list []fault.Peer
	for _, s := range of {
		if s.Running() {
			list = append(list, fault.Peer{Control: s.Control, Addrs: []string{s.RPC}})
		}
	}
	return list
}

// Heal thaws, clears and starts whatever faults left behind.
func (c *Cluster) Heal(ctx context.Context) error {
	var errs []error
	for _, s := range c.Servers {
		switch {
		case !s.Running():
			errs = append(errs, s.Start())
		case s.Frozen():
			errs = append(errs, s.Thaw())
			fallthrough
		default:
			err := s.Control.Clear(ctx)
			if err != nil && s.endsSoon(ctx) { // a disk that is full or broken ends a start: its supervisor tries again
				err = s.Start()
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// endLimit is how long a process that has closed its line may take to end, on a busy machine.
const endLimit = 20 * time.Second

// endsSoon reports whether a process that does not answer any more is about to be gone.
func (s *Server) endsSoon(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	select {
	case <-s.Ended():
		return true
	case <-ctx.Done():
		return false
	}
}

// Damage reports members that panicked.
func (c *Cluster) Damage() error {
	var errs []error
	for _, s := range c.Servers {
		errs = append(errs, s.Damage())
	}
	return errors.Join(errs...)
}

// Logs are the ends of what all servers printed.
func (c *Cluster) Logs() string {
	var b strings.Builder
	for _, s := range c.Servers {
		fmt.Fprintf(&b, "--- %s\n%s\n", s.Name, s.Log())
	}
	return b.String()
}

// Close kills all servers and removes the folder.
func (c *Cluster) Close() {
	for _, s := range c.Servers {
		s.Kill()
	}
	c.client.CloseIdleConnections()
	_ = os.RemoveAll(c.cfg.Dir)
}
