package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
)

// Gossip may suggest who is a member of a Raft group, and the servers themselves decide it: whoever is added, moved or
// removed is asked first, over the group's own protocol, who it is. See group.Membership.

// await returns with whom to begin the group. Meanwhile the other servers can ask who this one is.
func (p *Group) await(ctx context.Context) ([]group.Server, bool) {
	var answers sync.WaitGroup
	l := p.listener
	answers.Go(func() { group.Answer(l, p.statement) })
	first, ok := p.first(ctx)
	_ = l.Close()
	answers.Wait()
	p.listener = p.Base.Wire.Listen(wire.ProtoRaft, p.number, wire.Servers)
	return first, ok
}

// DialServer opens a stream to the same group at an address where a server of this datacenter must answer.
func (p *Group) DialServer(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := p.Base.Wire.DialServer(ctx, addr, base.ServerName(p.Base.Cfg.Node.Datacenter, p.Base.Cfg.DNS.Domain),
		wire.ProtoRaft, p.number)
	if err != nil {
		return nil, err
	}
	if peer := wire.PeerOf(conn); peer.Role() == wire.Stranger { // without TLS: a process of another user
		return nil, errors.Join(errkind.Errorf(errkind.Denied, "dial a server: %s", peer), conn.Close())
	}
	return conn, nil
}

// statement is what this server says of itself to servers that ask.
func (p *Group) statement() group.Statement {
	return group.Statement{ID: p.Base.ID, Datacenter: p.Base.Cfg.Node.Datacenter, Leaving: p.Leaving.Load(),
		Replica: p.Base.Cfg.Raft.ReadReplica}
}

// states reports whether a server states, at the address that gossip has for it, the id that gossip has for it.
func (p *Group) states(ctx context.Context, id, addr string) bool {
	said, err := group.Ask(ctx, p.DialServer, p.Base.Cfg.Node.Datacenter, addr)
	if err == nil && said.ID != id {
		err = fmt.Errorf("it states the id %s", said.ID)
	}
	if err != nil && ctx.Err() == nil {
		p.Base.Log.Info("ignoring a server that gossip reported: it did not confirm its id", "server", id, "address", addr,
			"reason", err)
	}
	return err == nil
}

// Suggestions are what gossip says of the group's servers.
func (p *Group) Suggestions() (list []group.Suggestion) {
	for _, m := range p.Base.Pool.Members(member.ActSuggestServer) {
		s := group.Suggestion{ID: m.Tags["id"], Address: base.MemberRPC(m), Gone: m.Status == member.Left ||
			m.Status == member.Leaving}
		if s.Gone || m.Status == member.Alive && p.takesPart(m) {
			list = append(list, s)
		}
	}
	return list
}

// firstMembers says with whom to begin a cluster; an empty list joins one that
// exists or goes on with the state on disk. False: the process ends first.
func (p *Group) firstMembers(ctx context.Context) ([]group.Server, bool) {
	cfg := p.Base.Cfg
	self := group.Server{ID: p.Base.ID, Address: p.Base.RPCAddr(), Voter: true}
	switch {
	case p.joined():
		return nil, true
	case cfg.Raft.Bootstrap || cfg.Dev:
		return []group.Server{self}, true
	case cfg.Raft.BootstrapExpect == 0:
		return nil, true
	}
	p.Base.Log.Info("waiting for the servers of a new cluster", "bootstrap_expect", cfg.Raft.BootstrapExpect)
	silent := map[string]time.Time{}
	for {
		changed := p.Base.Pool.Changes()
		list := p.expected(self)
		if list != nil && len(list) == 0 {
			return list, true
		}
		var again <-chan time.Time
		if list != nil {
			if list = p.confirmed(ctx, list, silent); len(list) >= cfg.Raft.BootstrapExpect {
				return list, true
			}
			again = p.Base.Clock.NewTimer(confirmAgain).C
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// expected returns all first members once as many as expected are alive, or an
// empty list when one of them is part of a cluster already; nil until then.
func (p *Group) expected(self group.Server) []group.Server {
	list := []group.Server{self}
	want := p.Base.Cfg.Raft.BootstrapExpect
	for _, m := range p.Base.Pool.Members(member.ActSuggestServer) {
		switch {
		case m.Name == p.Base.Cfg.Node.Name || m.Status != member.Alive:
			continue
		case m.Tags["raft_joined"] == "1" || m.Tags["bootstrap"] == "1":
			return []group.Server{}
		case m.Tags["read_replica"] == "1":
			continue
		}
		list = append(list, group.Server{ID: m.Tags["id"], Address: base.MemberRPC(m), Voter: true})
	}
	if len(list) < want {
		return nil
	}
	return list
}

// A server that gossip names is asked again after confirmAgain, and a new cluster begins without one that does not
// state its id for confirmFor.
const (
	confirmAgain = 250 * time.Millisecond
	confirmFor   = 10 * time.Second
)

// confirmed returns the first members when all of them have stated their ids, without those that have been silent for
// too long; nil is to ask again. All servers must begin with the same list, so nobody is left out in haste.
func (p *Group) confirmed(ctx context.Context, list []group.Server, silent map[string]time.Time) []group.Server {
	var out []group.Server
	wrong := make([]bool, len(list))
	var asks sync.WaitGroup
	for i, s := range list {
		asks.Go(func() { wrong[i] = s.ID != p.Base.ID && !p.states(ctx, s.ID, s.Address) })
	}
	asks.Wait()
	now := p.Base.Clock.Now()
	for i, s := range list {
		key := s.ID + " " + s.Address
		switch since, known := silent[key]; {
		case !wrong[i]:
			delete(silent, key)
			out = append(out, s)
		case !known:
			silent[key] = now
			return nil
		case now.Sub(since) < confirmFor:
			return nil
		}
	}
	return out
}
