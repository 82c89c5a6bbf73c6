package faultrun

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
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

// Shape says what cluster to make.
type Shape struct {
	Servers int
	// HCL is configuration beside the ports; Env is added to the servers' environment.
	HCL []string
	Env []string
	// Each, when set, is configuration of one server.
	Each func(server int) string
	// Mesh opens a port for Envoys on each server, Monitor the monitor plane.
	Mesh, Monitor bool
	// DNS is a port for DNS; "" is none.
	DNS string
	// Power gives the servers disks that lose their power (Server.Crash).
	Power bool
	// Net, when set, puts each server into its own network namespace; HTTP is then
	// reached through a unix socket, which no namespace hides.
	Net *netns.Net
}

// baseHCL opens the API to the workload: no access rules, and connections without end from one address.
const baseHCL = `limits { http_max_conns_per_client = 100000 }
acl { enabled = false }
ports { serf_wan = -1 }`

// Cluster is some servers and their folder.
type Cluster struct {
	Servers []*Server

	lab   *Lab
	dir   string
	admin *Client // the driver's own; one goroutine
}

// Open makes a cluster, starts it, and waits until every member serves.
func (l *Lab) Open(ctx context.Context, shape Shape) (*Cluster, error) {
	c, err := l.prepare(shape)
	if err != nil {
		return nil, err
	}
	for _, s := range c.Servers {
		if err := s.Start(); err != nil {
			c.Close()
			return nil, err
		}
	}
	if err := c.Ready(ctx, startLimit); err != nil {
		err = fmt.Errorf("a fresh cluster of %d: %w\n%s", len(c.Servers), err, c.logs())
		c.Close()
		return nil, err
	}
	return c, nil
}

// startLimit is how long a cluster may take until it serves, on a busy machine.
const startLimit = 45 * time.Second

// prepare lays a cluster out without starting it.
func (l *Lab) prepare(shape Shape) (*Cluster, error) {
	dir, err := os.MkdirTemp(l.Dir, "cluster")
	if err != nil {
		return nil, err
	}
	c := &Cluster{lab: l, dir: dir}
	for i := range shape.Servers {
		s, err := l.server(shape, dir, i)
		if err != nil {
			return nil, err
		}
		c.Servers = append(c.Servers, s)
	}
	var join []string
	for _, s := range c.Servers {
		join = append(join, "-retry-join", s.Serf)
	}
	for i, s := range c.Servers {
		if shape.Power {
			s.powered = s.Dir
		}
		args := append(l.arguments(shape, s), join...)
		if shape.Each != nil {
			args = append(args, "-hcl", shape.Each(i))
		}
		s.command = func() *exec.Cmd {
			cmd := exec.Command(l.Binary, args...)
			if shape.Net != nil {
				cmd = shape.Net.Command(context.Background(), i, l.Binary, args...)
			}
			cmd.Dir = dir
			cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CORBEL_") })
			cmd.Env = append(cmd.Env, shape.Env...)
			return cmd
		}
	}
	c.admin = NewClient(c.Servers[0].HTTP)
	return c, nil
}

func (l *Lab) server(shape Shape, dir string, i int) (*Server, error) {
	name := fmt.Sprintf("server-%d", i+1)
	s := &Server{Name: name, Dir: filepath.Join(dir, name), output: &spawn.Tail{}}
	if shape.Net != nil {
		ip := shape.Net.IP(i)
		s.HTTP, s.RPC, s.Serf = "unix:"+filepath.Join(dir, name+".sock"), ip+":8300", ip+":8301"
		return s, nil
	}
	fields := []*string{&s.HTTP, &s.RPC, &s.Serf, &s.GRPC, &s.Monitor, &s.Agents}
	ports, err := testport.Free(len(fields))
	if err != nil {
		return nil, err
	}
	for i, field := range fields {
		*field = "127.0.0.1:" + strconv.Itoa(ports[i])
	}
	return s, nil
}

func (l *Lab) arguments(shape Shape, s *Server) []string {
	host, rpc, _ := net.SplitHostPort(s.RPC)
	_, serf, _ := net.SplitHostPort(s.Serf)
	args := []string{"server", "-node", s.Name, "-data-dir", s.Dir, "-bind", host, "-bootstrap-expect",
		strconv.Itoa(shape.Servers),
		"-log-level", "warn", "-dns-port", cmp.Or(shape.DNS, "-1"),
		"-server-port", rpc, "-serf-lan-port", serf, "-hcl", baseHCL}
	if path, ok := strings.CutPrefix(s.HTTP, "unix:"); ok {
		args = append(args, "-hcl", fmt.Sprintf("addresses { http = \"unix://%s\" }\ntls { disabled = true "+
			"}\nallow_unencrypted_gossip = true", path))
	} else {
		_, port, _ := net.SplitHostPort(s.HTTP)
		args = append(args, "-http-port", port)
	}
	if _, port, err := net.SplitHostPort(s.GRPC); err == nil && shape.Mesh {
		args = append(args, "-grpc-port", port)
	}
	if shape.Monitor {
		_, api, _ := net.SplitHostPort(s.Monitor)
		_, agents, _ := net.SplitHostPort(s.Agents)
		args = append(args, "-hcl", fmt.Sprintf(monitorHCL, api, agents))
	}
	for _, text := range shape.HCL {
		args = append(args, "-hcl", text)
	}
	return args
}

// Ready waits until every running member knows one leader, and the leader's lease answers reads.
func (c *Cluster) Ready(ctx context.Context, limit time.Duration) error {
	return until(ctx, limit, "every running member serves", func() error {
		for _, s := range c.Servers {
			if !s.Running() {
				if c.running() == 0 {
					return hopeless{fmt.Errorf("%s ended:\n%s", s.Name, s.Log())}
				}
				continue
			}
			if leader, err := c.admin.At(s.HTTP).leader(ctx); err != nil || leader == "" {
				return fmt.Errorf("%s knows no leader (%w)", s.Name, orNone(err))
			}
			if r := c.admin.At(s.HTTP).Do(ctx, "GET", "/v1/catalog/nodes?consistent", nil); r.Status != 200 {
				return fmt.Errorf("%s: %s", s.Name, r)
			}
		}
		return nil
	})
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func (c *Cluster) running() (n int) {
	for _, s := range c.Servers {
		if s.Running() {
			n++
		}
	}
	return n
}

// Leader returns the member that leads now, nil when none is known to. It asks
// each member itself, so that a partition's former leader does not win.
func (c *Cluster) Leader(ctx context.Context) *Server {
	for _, s := range c.Servers {
		if !s.Running() || s.frozen {
			continue
		}
		addr, err := c.admin.At(s.HTTP).leader(ctx)
		if err != nil || addr != s.RPC {
			continue
		}
		if c.admin.Do(ctx, "GET", "/v1/kv/none?consistent", nil).Status == 404 {
			return s
		}
	}
	return nil
}

// AwaitLeader is Leader with patience.
func (c *Cluster) AwaitLeader(ctx context.Context, limit time.Duration) (*Server, error) {
	var found *Server
	err := until(ctx, limit, "a leader", func() error {
		if found = c.Leader(ctx); found == nil {
			return errors.New("none")
		}
		return nil
	})
	return found, err
}

// Followers are the running members beside leader.
func (c *Cluster) Followers(leader *Server) []*Server {
	return slices.DeleteFunc(slices.Clone(c.Servers), func(s *Server) bool { return s == leader || !s.Running() })
}

// Restart starts the members that do not run, with their data.
func (c *Cluster) Restart() error {
	for _, s := range c.Servers {
		if !s.Running() {
			if err := s.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Peers are the running members as fault.Partition takes them.
func (c *Cluster) Peers(of ...*Server) []fault.Peer {
	var list []fault.Peer
	for _, s := range of {
		if s.Running() {
			list = append(list, fault.Peer{Control: s.Control, Addrs: []string{s.RPC}})
		}
	}
	return list
}

// Heal thaws, clears and starts whatever the faults left behind.
func (c *Cluster) Heal(ctx context.Context) error {
	var errs []error
	for _, s := range c.Servers {
		switch {
		case !s.Running():
			errs = append(errs, s.Start())
		case s.frozen:
			errs = append(errs, s.Thaw())
			fallthrough
		default:
			errs = append(errs, s.Control.Clear(ctx))
		}
	}
	return errors.Join(errs...)
}

// Converged waits until every member has the newest state: a value written now is read stale everywhere.
func (c *Cluster) Converged(ctx context.Context, limit time.Duration) error {
	value := strconv.FormatInt(time.Now().UnixNano(), 36)
	err := until(ctx, limit, "a write", func() error {
		if r := c.admin.Do(ctx, "PUT", "/v1/kv/converged", []byte(value)); r.Status != 200 {
			return errors.New(r.String())
		}
		return nil
	})
	if err != nil {
		return err
	}
	return until(ctx, limit, "the newest write on every member", func() error {
		for _, s := range c.Servers {
			if r := c.admin.At(s.HTTP).Do(ctx, "GET", "/v1/kv/converged?raw&stale", nil); string(r.Body) != value {
				return fmt.Errorf("%s: %s", s.Name, r)
			}
		}
		return nil
	})
}

// Transfer hands leadership over to whom the leader chooses.
func (c *Cluster) Transfer(ctx context.Context) error {
	r := c.admin.Do(ctx, "POST", "/v1/operator/raft/transfer-leader", nil)
	var answer struct{ Success bool }
	if r.Status != 200 || json.Unmarshal(r.Body, &answer) != nil || !answer.Success {
		return fmt.Errorf("transfer leadership: %s", r)
	}
	return nil
}

// Damage reports members that panicked, and those that ended by themselves.
func (c *Cluster) Damage() error {
	var errs []error
	for _, s := range c.Servers {
		errs = append(errs, s.damage())
	}
	return errors.Join(errs...)
}

func (c *Cluster) logs() string {
	var b strings.Builder
	for _, s := range c.Servers {
		fmt.Fprintf(&b, "--- %s\n%s\n", s.Name, s.Log())
	}
	return b.String()
}

// Close kills all members and removes the folder.
func (c *Cluster) Close() {
	for _, s := range c.Servers {
		s.Kill()
	}
	c.admin.Close()
	_ = os.RemoveAll(c.dir)
}
