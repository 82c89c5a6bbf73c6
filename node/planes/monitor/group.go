package monitorplane

import (
	"context"
	"errors"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/errkind/errwire"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/roundrobin"
	"corbel.dev/corbel/monitor/shardrouter"
	"corbel.dev/corbel/monitor/users"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
)

// groupID is the number of the plane's Raft group on the wire; 2 is that of the secrets plane.
const groupID = 3

// Tag in a server's gossip tags says that it is to be a member of the monitor plane.
const Tag = Name

// tagAgents tells where a server takes agents: ws or wss, a colon, and the port.
const tagAgents = "monitor_agents"

// MethodPropose is the RPC by which a command reaches the leader of the plane.
const MethodPropose = "monitor.propose"

// What dev begins with, as Sensu's users expect of a development server.
const (
	devUser     = "admin"
	devPassword = "P@ssw0rd!"
)

// Group is the plane's configuration and the Raft group that replicates it. It is written on any server, by way of the
// leader.
type Group struct {
	b         *base.Base
	Raft      *raftgroup.Group
	Resources *resources.Resources
}

func newGroup(d *plane.Doors) *Group {
	g := &Group{b: d.Base, Resources: resources.New(d.Log)}
	g.Raft = d.Group(groupID, g.Resources)
	g.Resources.Serve(g)
	d.Handle(wire.Servers, MethodPropose, g.propose)
	return g
}

// Propose implements resources.Group. It returns once this server has the command too.
func (g *Group) Propose(ctx context.Context, cmd []byte) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, g.b.Cfg.Limits.RPCClient)
	defer cancel()
	giveUp := g.b.Clock.Now().Add(g.b.Cfg.Raft.RPCHold)
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		changes := g.Raft.LeaderChanges()
		out, err := g.try(ctx, cmd)
		if !errkind.Is(err, errkind.NotLeader) && !errkind.Is(err, errkind.Unavailable) || ctx.Err() != nil ||
			g.b.Clock.Now().After(giveUp) {
			return out, err
		}
		t := g.b.Clock.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
		case <-changes:
		case <-t.C:
		}
		t.Stop()
	}
}

func (g *Group) try(ctx context.Context, cmd []byte) (any, error) {
	if g.Raft.IsLeader() {
		return g.Raft.Propose(ctx, cmd)
	}
	addr := g.Raft.LeaderAddr()
	if addr == "" || addr == g.b.RPCAddr() {
		return nil, raftgroup.ErrForming
	}
	reply, err := g.b.RPC.Call(ctx, addr, MethodPropose, cmd)
	if err != nil {
		return nil, err
	}
	r := pack.Read(reply)
	index, conflict := r.Uint(), r.Bool()
	refused := error(nil)
	if r.Bool() {
		refused = errwire.Read(r)
		if conflict {
			refused = objects.ErrPrecondition
		}
	}
	if r.Err() != nil {
		return nil, errkind.E(errkind.Unknown, MethodPropose, r.Err())
	}
	return refused, g.reach(ctx, index)
}

// reach waits until this server's view has index.
func (g *Group) reach(ctx context.Context, index uint64) error {
	for {
		changed := g.Resources.Changed()
		if g.Resources.View().Index() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errkind.E(errkind.Unknown, "the change was made; this server does not show it yet", ctx.Err())
		}
	}
}

// propose serves MethodPropose on the leader.
func (g *Group) propose(ctx context.Context, cmd []byte) ([]byte, error) {
	out, err := g.Raft.Propose(ctx, cmd)
	if err != nil {
		return nil, err
	}
	refused, _ := out.(error)
	b := pack.Uint(nil, g.Resources.View().Index())
	b = pack.Bool(b, errors.Is(refused, objects.ErrPrecondition))
	b = pack.Bool(b, refused != nil)
	if refused != nil {
		b = errwire.Append(b, refused, 0)
	}
	return b, nil
}

// ErrInitialized is the answer to who would initialize a plane that is so already.
var ErrInitialized = errkind.New(errkind.Conflict, "the monitor plane has been initialized before")

// initialized says whether the plane can be used.
func (g *Group) initialized() bool { return g.Resources.View().Get("namespaces", "", "default") != nil }

// Initialize makes an empty plane usable: the seed in one command, so that it is there whole or not at all.
func (g *Group) Initialize(ctx context.Context, admin, password, apiKey string) error {
	if g.initialized() {
		return ErrInitialized
	}
	ops, err := users.Seed(admin, password, apiKey, 0, g.b.Clock.Now().Unix())
	if err != nil {
		return errkind.E(errkind.Invalid, "password", err)
	}
	err = g.Resources.Write(ctx, ops...)
	if errkind.Is(err, errkind.Conflict) {
		return ErrInitialized
	}
	return err
}

// members lists the servers of the plane.
func (g *Group) members() (list []shardrouter.Member) {
	for _, s := range g.b.Pool.Members(member.ActAskServer) {
		if s.Tags[Tag] != "" {
			list = append(list, shardrouter.Member{ID: s.Tags["id"], Name: s.Name, Addr: base.MemberRPC(s),
				Left: s.Status == member.Left, Leaving: s.Tags[base.TagAway] == "drains"})
		}
	}
	return list
}

// roundServers are the members of the plane's group.
func (g *Group) roundServers() (out []roundrobin.Server) {
	raft := g.Raft.Raft.Load()
	if raft == nil {
		return nil
	}
	servers, _, err := raft.Configuration()
	if err != nil {
		return nil
	}
	for _, s := range servers {
		out = append(out, roundrobin.Server{ID: s.ID, Address: s.Address, Voter: s.Voter})
	}
	return out
}

// others are where the plane's other servers that are up are reached.
func (g *Group) others() (out []string) {
	for _, s := range g.b.Pool.Members(member.ActAskServer) {
		if s.Tags[Tag] != "" && s.Status == member.Alive && s.Tags["id"] != g.b.ID {
			out = append(out, base.MemberRPC(s))
		}
	}
	return out
}

// firstUser is who a new plane is initialized with by itself; "" where an operator does it.
func (g *Group) firstUser() (name, password string) {
	cfg := &g.b.Cfg.Monitor
	if cfg.AdminName == "" && g.b.Cfg.Dev {
		return devUser, devPassword
	}
	return cfg.AdminName, cfg.AdminSecret
}

// seed makes a new plane usable where the configuration says by whom.
func (g *Group) seed(ctx context.Context) error {
	name, password := g.firstUser()
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for name != "" && ctx.Err() == nil && !g.initialized() {
		if g.Raft.IsLeader() {
			err := g.Initialize(ctx, name, password, g.b.Cfg.Monitor.AdminKey)
			if err != nil && !errors.Is(err, ErrInitialized) && ctx.Err() == nil {
				g.b.Log.Warn("cannot initialize the monitor plane yet", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Next()):
		}
	}
	<-ctx.Done()
	return nil
}
