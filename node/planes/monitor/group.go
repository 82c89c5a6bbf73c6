package monitorplane

import (
	"context"
	"errors"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
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
	writer    *raftgroup.Writer[struct{}]
}

func newGroup(d *plane.Doors) *Group {
	g := &Group{b: d.Base, Resources: resources.New(d.Log)}
	g.Raft = d.Group(groupID, g.Resources)
	g.writer = raftgroup.NewWriter(g.Raft, MethodPropose, raftgroup.Answers[struct{}]{
		Of: func(made any) (none struct{}, refused error) {
			refused, _ = made.(error)
			return none, refused
		},
		Append:   func(b []byte, _ struct{}) []byte { return b },
		Read:     func(*pack.Reader) (none struct{}) { return none },
		Refusals: []error{objects.ErrPrecondition},
		Index:    func() uint64 { return g.Resources.View().Index() },
		Changed:  g.Resources.Changed,
	})
	g.Resources.Serve(g)
	d.Handle(wire.Servers, MethodPropose, g.writer.Serve)
	return g
}

// Propose implements resources.Group. It returns once this server has the command too.
func (g *Group) Propose(ctx context.Context, cmd []byte) (any, error) { return g.writer.Do(ctx, cmd) }

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
