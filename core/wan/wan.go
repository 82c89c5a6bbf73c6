// Package wan is a server's part in the pool of all datacenters' servers, and its ways to them.
//
// Gossip tells who is there; whether a server can be reached is judged by calls of our own (Paths), because gossip
// between datacenters takes its time to see a failure. Nothing of the local datacenter waits for anything here.
package wan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/telemetry"
)

// TagPort tells the servers of one's own datacenter where the gossip between datacenters listens.
const TagPort = "wan_join_port"

// roleServer is what the tags of servers say.
const roleServer = "consul"

// MethodKeys is the RPC by which a server tells another one to change its keyring of the pool.
const MethodKeys = "gossip.keys.wan"

// floodInterval is how often a server brings its neighbours into the WAN pool without a change.
const floodInterval = 10 * time.Second

// Config describes a WAN.
type Config struct {
	Node, Datacenter string
	// Gossip describes the pool, but for its name, whom it accepts and what it carries.
	Gossip member.Config
	// Optional says that nobody asked for the pool's port: where it is taken this server takes no part.
	Optional bool
	// LAN is the pool of this server's datacenter, Near calls the servers in it.
	LAN  *member.Pool
	Near *rpc.Client
	// Announce puts a tag of this server into LAN.
	Announce func(ctx context.Context, key, value string) error
	Wire     *wire.Wire
	// ServerName is the name that the certificates of a datacenter's servers show.
	ServerName func(dc string) string
	// Timeout bounds a call; 0 is rpc's own.
	Timeout time.Duration
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// WAN is a server's part in the pool.
type WAN struct {
	*Paths
	Pool *member.Pool
	cfg  Config
}

// New checks cfg and reads the pool's files.
func New(cfg Config) (*WAN, error) {
	w := &WAN{cfg: cfg}
	w.Paths = NewPaths(rpc.NewClient(rpc.ClientConfig{Timeout: cfg.Timeout, Dial: w.dial}), cfg.Log, cfg.Metrics)
	gossip := cfg.Gossip
	gossip.Name, gossip.JoinPort, gossip.Accept, gossip.Carry = Name(cfg.Node, cfg.Datacenter), defaultPort, accept,
		w.carryKeys
	var err error
	w.Pool, err = member.New(gossip)
	return w, err
}

// defaultPort is the port of join addresses that name none.
const defaultPort = 8302

// Name is that of a datacenter's server in the pool.
func Name(node, dc string) string { return node + "." + dc }

// accept keeps agents out: they reach other datacenters through their servers.
func accept(m member.Member) error {
	dc := m.Tags["dc"]
	if m.Tags["role"] != roleServer || dc == "" || !strings.HasSuffix(m.Name, "."+dc) {
		return fmt.Errorf("member %s is no server that names its datacenter", m.Name)
	}
	return nil
}

// dial reaches a server of another datacenter. Gossip alone says that it is one, and it gets clients' tokens: where
// there is TLS its certificate names a server of that datacenter, whatever verify_server_hostname says.
func (w *WAN) dial(ctx context.Context, addr string) (net.Conn, error) {
	dc := w.DatacenterOf(addr)
	if dc == "" {
		return nil, errkind.E(errkind.Unavailable, "dial "+addr, errors.New("no server of a datacenter is known there"))
	}
	return w.cfg.Wire.DialServer(ctx, addr, w.cfg.ServerName(dc), wire.ProtoRPC, 0)
}

// carryKeys brings a key operation to a server of any datacenter.
func (w *WAN) carryKeys(ctx context.Context, to member.Member, req []byte) ([]byte, error) {
	client := w.Client
	if to.Tags["dc"] == w.cfg.Datacenter {
		client = w.cfg.Near
	}
	return client.Call(ctx, net.JoinHostPort(to.Addr, to.Tags["port"]), MethodKeys, req)
}

// Run takes part in the pool until ctx ends.
func (w *WAN) Run(ctx context.Context) error {
	defer func() { _ = w.Client.Close() }()
	err := w.Pool.Run(ctx)
	if err == nil || ctx.Err() != nil || !neterr.InUse(err) || !w.cfg.Optional {
		return err
	}
	// A second server on one host is none of its business.
	w.cfg.Log.Warn("ports.serf_wan is taken: this server takes no part in the gossip between datacenters; give it a port "+
		"of its own, or -1",
		"address", w.cfg.Gossip.Bind)
	<-ctx.Done()
	return nil
}

// Watch keeps the paths in step with the pool until ctx ends.
func (w *WAN) Watch(ctx context.Context) error {
	defer w.Stop()
	for {
		changed := w.Pool.Changes()
		w.Follow(ctx, w.others())
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Gather tells the servers of this datacenter where the pool listens, and brings them into it,
// until ctx ends.
func (w *WAN) Gather(ctx context.Context) error {
	select {
	case <-w.Pool.Ready():
	case <-ctx.Done():
		return nil
	}
	_, port := w.Pool.Addr()
	if err := w.cfg.Announce(ctx, TagPort, strconv.Itoa(port)); err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn("cannot announce this server's WAN gossip address", "error", err)
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		local := w.cfg.LAN.Changes()
		w.flood(ctx)
		t.Reset(floodInterval)
		select {
		case <-ctx.Done():
			return nil
		case <-local:
		case <-t.C:
		}
	}
}

// others are the servers of other datacenters that have not left.
func (w *WAN) others() []member.Member {
	var list []member.Member
	for _, m := range w.Pool.Members(member.ActFederate) {
		if m.Tags["dc"] != w.cfg.Datacenter && m.Status != member.Left && m.Status != member.Leaving {
			list = append(list, m)
		}
	}
	return list
}

// flood joins those servers of this datacenter that the pool does not know: so one join is
// enough for all of them.
func (w *WAN) flood(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, floodInterval)
	defer cancel()
	for _, m := range w.cfg.LAN.Members(member.ActFlood) {
		port := m.Tags[TagPort]
		if m.Name == w.cfg.Node || port == "" {
			continue
		}
		_, ok := w.Pool.Member(member.ActFlood, Name(m.Name, w.cfg.Datacenter))
		if ok {
			continue
		}
		if _, err := w.Pool.Join(ctx, []string{net.JoinHostPort(m.Addr, port)}); err != nil && ctx.Err() == nil {
			w.cfg.Log.Debug("a server of this datacenter cannot be joined to the others", "server", m.Name, "error", err)
		}
	}
}

// Known lists the datacenters: this one, then by distance.
func (w *WAN) Known() []string { return w.datacenters(w.cfg.Datacenter) }
