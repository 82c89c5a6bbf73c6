// Package intrude calls a cluster's servers as those who have no right to: with an agent's certificate, and with none
// (row A13). A door that opens is an error.
package intrude

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
)

// Authority holds the certificates of a cluster, made as an operator makes them.
type Authority struct {
	dir   string
	roots *x509.CertPool
	agent tls.Certificate // good for agents alone
}

// NewAuthority makes the certificates in a folder below dir, by the binary's own tls command.
func NewAuthority(ctx context.Context, binary, dir string) (*Authority, error) {
	dir, err := os.MkdirTemp(dir, "authority")
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"tls", "ca", "create"},
		{"tls", "cert", "create", "-server", "-dc", "dc1"},
		{"tls", "cert", "create", "-client", "-dc", "dc1"},
	} {
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("corbel %v: %w: %s", args, err, out)
		}
	}
	a := &Authority{dir: dir, roots: x509.NewCertPool()}
	pem, err := os.ReadFile(filepath.Join(dir, "consul-agent-ca.pem"))
	if err != nil {
		return nil, err
	}
	a.roots.AppendCertsFromPEM(pem)
	own := filepath.Join(dir, "dc1-client-consul-0")
	a.agent, err = tls.LoadX509KeyPair(own+".pem", own+"-key.pem")
	return a, err
}

// HCL gives a server its certificate, and has it demand one.
func (a *Authority) HCL() string {
	return fmt.Sprintf(`tls { internal_rpc {
  ca_file = "%[1]s/consul-agent-ca.pem"
  cert_file = "%[1]s/dc1-server-consul-0.pem"
  key_file = "%[1]s/dc1-server-consul-0-key.pem"
  verify_incoming = true
  verify_outgoing = true
} }`, a.dir)
}

// serversOnly are methods that servers ask of each other; node TestRoleMatrix has all. A name that is none is refused
// in other words, and counts as an answer.
var serversOnly = []string{"monitor.propose", "monitor.results", "monitor.replicate", "monitor.release", "monitor.ask",
	"monitor.execute", "catalog.monitored", "ask"}

// caller is somebody who calls the servers' port without the right to.
type caller struct {
	servers []string
	// dial opens a connection before its header, as somebody who has no server's certificate.
	dial func(ctx context.Context, addr string) (net.Conn, error)
	who  string
	// calls are what they tried, refused what a server answered with a refusal.
	calls, refused atomic.Int64
}

// pause keeps the servers' processor for the load.
func pause(ctx context.Context) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}

// callers are an agent and a stranger, who know where the servers are.
func (a *Authority) callers(servers []string) []*caller {
	with := func(certs ...tls.Certificate) func(context.Context, string) (net.Conn, error) {
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 2 * time.Second},
			Config: &tls.Config{RootCAs: a.roots, ServerName: "server.dc1.consul", Certificates: certs}}
		return func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return []*caller{
		{servers: servers, dial: with(a.agent), who: "an agent's certificate"},
		{servers: servers, dial: with(), who: "a stranger"},
	}
}

// Start lets the callers try the servers until ctx ends; stop is told of a door that opened. What it returns waits for
// them, and counts what they tried and what was refused.
func (a *Authority) Start(ctx context.Context, stop func(error), servers ...string) (ended func() (int, int)) {
	var wg sync.WaitGroup
	all := a.callers(servers)
	for _, i := range all {
		wg.Go(func() {
			if err := i.run(ctx); err != nil {
				stop(err)
			}
		})
	}
	return func() (calls, refused int) {
		wg.Wait()
		for _, i := range all {
			calls, refused = calls+int(i.calls.Load()), refused+int(i.refused.Load())
		}
		return calls, refused
	}
}

// run tries every door of every server until ctx ends. An error is a door that opened.
func (i *caller) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for _, addr := range i.servers {
		for _, try := range []func(context.Context, string) error{i.call, i.vote, i.noise} {
			wg.Go(func() {
				for ctx.Err() == nil {
					one, cancel := context.WithTimeout(ctx, 5*time.Second)
					err := try(one, addr)
					cancel()
					if err != nil {
						stop(fmt.Errorf("%s at %s: %w", i.who, addr, err))
					}
					pause(ctx)
				}
			})
		}
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if i.refused.Load() == 0 {
		return fmt.Errorf("%s: of %d calls none was refused: the servers were not reached", i.who, i.calls.Load())
	}
	return nil
}

// opened is a connection with its header sent.
func (i *caller) opened(ctx context.Context, addr string, proto wire.Protocol, group uint8) (net.Conn, error) {
	conn, err := i.dial(ctx, addr)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "dial", err)
	}
	_, err = conn.Write([]byte{byte(proto), group})
	return conn, errkind.E(errkind.Unavailable, "dial", err)
}

// call asks for what servers alone may ask for.
func (i *caller) call(ctx context.Context, addr string) error {
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return i.opened(ctx, addr, wire.ProtoRPC, 0) }
	c := rpc.NewClient(rpc.ClientConfig{Timeout: 5 * time.Second, Dial: dial})
	defer func() { _ = c.Close() }()
	body := make([]byte, 512)
	_, _ = rand.Read(body) // it never fails
	for _, method := range serversOnly {
		i.calls.Add(1)
		switch _, err := c.Call(ctx, addr, method, body); {
		case errkind.Is(err, errkind.Denied):
			i.refused.Add(1)
		case err == nil, !errkind.Is(err, errkind.Unavailable) && !errkind.Is(err, errkind.Unknown) && ctx.Err() == nil:
			return fmt.Errorf("%s answered: %v", method, err)
		case i.who == "a stranger":
			i.refused.Add(1) // its connection is closed at the door
		}
	}
	return nil
}

// dialled are an intruder's connections to a Raft group; nobody comes back by them.
type dialled struct {
	i     *caller
	group uint8
	shut  chan struct{}
}

func (d dialled) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.i.opened(ctx, string(addr), wire.ProtoRaft, d.group)
}

func (d dialled) Accept() (net.Conn, error) { <-d.shut; return nil, net.ErrClosed }
func (d dialled) Close() error              { close(d.shut); return nil }
func (d dialled) Addr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// vote asks for a vote of a far term, as a leader hands leadership over, and appends as the leader of it. An answer
// would end the term of the one who leads.
func (i *caller) vote(_ context.Context, addr string) error {
	const far = 1 << 40
	for _, group := range []uint8{1, 3} {
		t := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: dialled{i, group, make(chan struct{})}, MaxPool: 1, Timeout: time.Second, Logger: hclog.NewNullLogger(),
		})
		head := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("liar"), Addr: []byte("127.0.0.1:1")}
		i.calls.Add(2)
		asked := t.RequestVote("x", raft.ServerAddress(addr), &raft.RequestVoteRequest{
			RPCHeader: head, Term: far, LastLogIndex: far, LastLogTerm: far, LeadershipTransfer: true,
		}, &raft.RequestVoteResponse{})
		told := t.AppendEntries("x", raft.ServerAddress(addr), &raft.AppendEntriesRequest{
			RPCHeader: head, Term: far, PrevLogEntry: far, PrevLogTerm: far, LeaderCommitIndex: far,
		}, &raft.AppendEntriesResponse{})
		_ = t.Close()
		if asked == nil || told == nil {
			return fmt.Errorf("Raft group %d answered (vote: %v, entries: %v)", group, asked, told)
		}
	}
	return nil
}

// noise sends what means nothing, to each protocol, and hangs up in the middle.
func (i *caller) noise(ctx context.Context, addr string) error {
	body := make([]byte, 4096)
	_, _ = rand.Read(body) // it never fails
	for proto := wire.Protocol(0); proto < 8; proto++ {
		conn, err := i.opened(ctx, addr, proto, 0)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
			_, _ = conn.Write(body)
			_, _ = conn.Read(body)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
	return nil
}
