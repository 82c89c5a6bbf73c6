package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
)

// tagWANPort tells the servers of one's own datacenter where the gossip between datacenters listens.
const tagWANPort = "wan_join_port"

// floodInterval is how often a server brings its neighbours into the WAN pool without a change.
const floodInterval = 10 * time.Second

// wan is a server's part in the pool of all datacenters' servers, and its ways to them.
//
// Gossip tells who is there; whether a server can be reached is judged by calls of our own
// (wanPaths), because gossip between datacenters takes its time to see a failure. Nothing of
// the local datacenter waits for anything here.
type wan struct {
	b     *base.Base
	pool  *member.Pool
	paths *wanPaths
	rpc   *rpc.Client
	// callTimeout bounds a request that does not block; blockTimeout one that does.
	callTimeout, blockTimeout time.Duration
}

// newWAN checks the configuration; nil means that this process takes no part.
func newWAN(b *base.Base) (*wan, error) {
	cfg := b.Cfg
	if cfg.Listen.GossipWAN == "" {
		return nil, nil
	}
	w := &wan{b: b, callTimeout: cfg.Limits.RPCClient, blockTimeout: cfg.Queries.MaxTime * 9 / 8}
	w.rpc = rpc.NewClient(rpc.ClientConfig{Timeout: cfg.Limits.RPCClient, Dial: w.dial})
	w.paths = newWANPaths(b.Log, func(ctx context.Context, addr string) error {
		_, err := w.rpc.Call(ctx, addr, methodPing, nil)
		return err
	})
	profile := member.WAN
	if cfg.Dev {
		profile = member.Local
	}
	snapshot := base.InDir(cfg.DataDir, "gossip", "members-wan")
	if snapshot != "" {
		if err := b.FS.MkdirAll(filepath.Dir(snapshot), 0o700); err != nil {
			return nil, err
		}
	}
	var err error
	w.pool, err = member.New(member.Config{
		Name: wanName(cfg.Node.Name, cfg.Node.Datacenter), Bind: cfg.Listen.GossipWAN, Advertise: cfg.Advertise.AddrWAN,
		Tags:    b.Tags(),
		Encrypt: cfg.Gossip.Encrypt, KeyringFile: base.InDir(cfg.DataDir, "gossip", "keyring-wan"),
		PlainIncoming: !cfg.Gossip.VerifyIncoming, PlainOutgoing: !cfg.Gossip.VerifyOutgoing,
		SnapshotFile: snapshot, RejoinAfterLeave: cfg.Leave.RejoinAfterLeave, Profile: profile, JoinPort: defaultWANPort,
		ReconnectTimeout: cfg.Gossip.ReconnectTimeout, Accept: acceptWAN, Carry: w.carryKeys, Faults: b.Faults.Net(),
		FS: b.FS, Clock: b.Clock, Log: b.Log.With("pool", "wan"), Metrics: b.Metrics,
	})
	return w, err
}

// defaultWANPort is the port of WAN join addresses that name none.
const defaultWANPort = 8302

func wanName(node, dc string) string { return node + "." + dc }

// acceptWAN keeps agents out: they reach other datacenters through their servers.
func acceptWAN(m member.Member) error {
	dc := m.Tags["dc"]
	if m.Tags["role"] != base.RoleServer || dc == "" || !strings.HasSuffix(m.Name, "."+dc) {
		return fmt.Errorf("member %s is no server that names its datacenter", m.Name)
	}
	return nil
}

// dial reaches a server of another datacenter. Gossip alone says that it is one, and it gets clients' tokens: where
// there is TLS its certificate names a server of that datacenter, whatever verify_server_hostname says.
func (w *wan) dial(ctx context.Context, addr string) (net.Conn, error) {
	dc := w.paths.datacenterOf(addr)
	if dc == "" {
		return nil, errkind.E(errkind.Unavailable, "dial "+addr, errors.New("no server of a datacenter is known there"))
	}
	return w.b.Wire.DialServer(ctx, addr, base.ServerName(dc, w.b.Cfg.DNS.Domain), wire.ProtoRPC, 0)
}

// run takes part in the pool until ctx ends.
func (w *wan) run(ctx context.Context) error {
	defer func() { _ = w.rpc.Close() }()
	err := w.pool.Run(ctx)
	g := &w.b.Cfg.Gossip
	if err == nil || ctx.Err() != nil || !errors.Is(err, syscall.EADDRINUSE) ||
		w.b.Cfg.Origin("ports.serf_wan") != "default" ||
		len(g.RetryJoinWAN)+len(g.StartJoinWAN) > 0 {
		return err
	}
	// Nobody asked for this port: a second server on one host is none of its business.
	w.b.Log.Warn("ports.serf_wan is taken: this server takes no part in the gossip between datacenters; give it a port "+
		"of its own, or -1",
		"address", w.b.Cfg.Listen.GossipWAN)
	<-ctx.Done()
	return nil
}

// join joins the pool as start_join_wan and retry_join_wan say.
func (w *wan) join(ctx context.Context) error {
	g := &w.b.Cfg.Gossip
	return base.JoinPool(ctx, w.pool, base.JoinPlan{Start: g.StartJoinWAN, Retry: g.RetryJoinWAN,
		Interval: g.RetryIntervalWAN,
		Most:     g.RetryMaxWAN, Suffix: "_wan"})
}

// follow keeps the paths in step with the pool until ctx ends.
func (w *wan) follow(ctx context.Context) error {
	defer w.paths.stop()
	for {
		changed := w.pool.Changes()
		w.paths.follow(ctx, w.others())
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// gather tells the servers of this datacenter where the pool listens, and brings them into it,
// until ctx ends.
func (w *wan) gather(ctx context.Context) error {
	select {
	case <-w.pool.Ready():
	case <-ctx.Done():
		return nil
	}
	_, port := w.pool.Addr()
	if err := w.b.AddTag(ctx, tagWANPort, strconv.Itoa(port)); err != nil && ctx.Err() == nil {
		w.b.Log.Warn("cannot announce this server's WAN gossip address", "error", err)
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		local := w.b.Pool.Changes()
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
func (w *wan) others() []member.Member {
	var list []member.Member
	for _, m := range w.pool.Members(member.ActFederate) {
		if m.Tags["dc"] != w.b.Cfg.Node.Datacenter && m.Status != member.Left && m.Status != member.Leaving {
			list = append(list, m)
		}
	}
	return list
}

// flood joins those servers of this datacenter that the pool does not know: so one join is
// enough for all of them.
func (w *wan) flood(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, floodInterval)
	defer cancel()
	for _, m := range w.b.Pool.Members(member.ActFlood) {
		port := m.Tags[tagWANPort]
		if m.Name == w.b.Cfg.Node.Name || port == "" {
			continue
		}
		_, ok := w.pool.Member(member.ActFlood, wanName(m.Name, w.b.Cfg.Node.Datacenter))
		if ok {
			continue
		}
		if _, err := w.pool.Join(ctx, []string{net.JoinHostPort(m.Addr, port)}); err != nil && ctx.Err() == nil {
			w.b.Log.Debug("a server of this datacenter cannot be joined to the others", "server", m.Name, "error", err)
		}
	}
}

// Known lists the datacenters: this one, then by distance.
func (w *wan) Known() []string { return w.paths.datacenters(w.b.Cfg.Node.Datacenter) }

var errNoPath = errkind.New(errkind.Unavailable, "No path to datacenter")

// wanTries bounds how many servers of a datacenter are asked for one request.
const wanTries = 3

// choices are the paths to try for one request: those last whose servers were silent lately.
func (w *wan) choices(dc string) []*wanPath {
	list := w.paths.to(dc, math.MaxInt)
	slices.SortStableFunc(list, func(a, b *wanPath) int {
		silent := func(p *wanPath) int {
			if w.rpc.Silent(p.addr) {
				return 1
			}
			return 0
		}
		return silent(a) - silent(b)
	})
	return list[:min(len(list), wanTries)]
}

// ask calls a server of dc, and another one when that one certainly did nothing, or when
// asking twice does no harm.
func (w *wan) ask(ctx context.Context, dc, method string, req []byte, reads, waits bool) ([]byte, error) {
	w.b.Metrics.Counter("rpc.cross-dc", "datacenter", dc).Add(1)
	err := error(errNoPath)
	for _, p := range w.choices(dc) {
		var reply []byte
		if reply, err = w.call(ctx, p, method, req, waits); err == nil {
			return reply, nil
		}
		p.doubt()
		again := errkind.Is(err, errkind.Unavailable) || reads && errkind.Is(err, errkind.Unknown)
		if !again || ctx.Err() != nil {
			return nil, err
		}
		err = errkind.E(errkind.Unavailable, err.Error(), errNoPath)
	}
	return nil, err
}

// call sends the request; it ends when the path is judged broken: a network that was cut leaves
// connections open and silent.
func (w *wan) call(ctx context.Context, p *wanPath, method string, req []byte, waits bool) ([]byte, error) {
	broken := p.broken()
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(broken, cancel)
	defer stop()
	call := w.rpc.Call
	if waits {
		call = w.rpc.Wait
	}
	reply, err := call(callCtx, p.addr, method, req)
	if err != nil && broken.Err() != nil && ctx.Err() == nil {
		return nil, errkind.E(errkind.Unknown, "the connection to "+p.name+" broke: outcome unknown", errNoPath)
	}
	return reply, err
}
