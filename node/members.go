package node

import (
	"context"
	"maps"
	"net"
	"strconv"
	"time"

	"corbel.dev/corbel/api/consulapi/agentrows"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/version"
)

// Roles in the tags of members.
const (
	roleServer = "consul"
	roleAgent  = "node"
)

// tags describe this process to the pool in the contract's words, and in added ones. The caller holds tagMu, or is
// alone.
func (b *base) tags() map[string]string {
	cfg := b.cfg
	t := map[string]string{
		"role": roleAgent, "dc": cfg.Node.Datacenter, "id": b.id, "vsn": "2", "vsn_min": "2", "vsn_max": "3",
		"build": version.Contract + ":corbel" + version.Number, "port": strconv.Itoa(b.rpcPort()),
	}
	if !cfg.Server {
		return t
	}
	t["role"], t["raft_vsn"], t["acls"] = roleServer, "3", "0"
	if cfg.ACL.Enabled {
		t["acls"] = "1"
	}
	if cfg.Raft.Bootstrap || cfg.Dev {
		t["bootstrap"] = "1"
	}
	if n := cfg.Raft.BootstrapExpect; n > 0 {
		t["expect"] = strconv.Itoa(n)
	}
	if cfg.Monitor.Enabled {
		t[tagMonitor] = "1"
	}
	if cfg.Raft.ReadReplica {
		t["read_replica"] = "1"
	}
	maps.Copy(t, b.added)
	return t
}

// addTag adds a tag to this process's description, or with "" takes one away, and tells the pool.
func (b *base) addTag(ctx context.Context, key, value string) error {
	b.tagMu.Lock()
	defer b.tagMu.Unlock()
	if b.added[key] = value; value == "" {
		delete(b.added, key)
	}
	tags := b.tags()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return b.pool.SetTags(ctx, tags)
}

func memberRPC(m member.Member) string { return net.JoinHostPort(m.Addr, m.Tags["port"]) }

// otherServers are the RPC addresses of the servers to ask: living ones other than this process, without those that
// start or drain while there are others.
func (b *base) otherServers() []string {
	all, staying := b.servers()
	if len(staying) > 0 {
		return staying
	}
	return all
}

// livingServers are the RPC addresses of living servers other than this process.
func (b *base) livingServers() []string {
	all, _ := b.servers()
	return all
}

func (b *base) servers() (all, staying []string) {
	for _, m := range b.pool.Members(member.ActAskServer) {
		if m.Status != member.Alive || m.Name == b.cfg.Node.Name {
			continue
		}
		all = append(all, memberRPC(m))
		if m.Tags[tagAway] == "" {
			staying = append(staying, memberRPC(m))
		}
	}
	return all, staying
}

// poolMembers is the pool as the registry reconciles with it.
type poolMembers struct{ *member.Pool }

// Members implements registry.Members.
func (p poolMembers) Members() []registry.Member {
	all := p.Pool.Members(member.ActReconcile)
	list := make([]registry.Member, len(all))
	for i, m := range all {
		list[i] = registry.Member{Name: m.Name, Addr: m.Addr, Tags: m.Tags, Status: registry.MemberStatus(m.Status)}
	}
	return list
}

// apiMembers is the pool as operators see it.
type apiMembers struct{ *member.Pool }

// Members implements agentrows.Members.
func (p apiMembers) Members() []agentrows.Member {
	all := p.Pool.Members(member.ActShow)
	list := make([]agentrows.Member, len(all))
	for i, m := range all {
		list[i] = agentrows.Member{Name: m.Name, Addr: m.Addr, Port: uint16(m.Port), Tags: m.Tags, Status: int(m.Status)}
	}
	return list
}

// Join implements agentrows.Members.
func (p apiMembers) Join(ctx context.Context, addrs []string) (int, error) {
	return p.Pool.Join(ctx, addrs)
}

// autopilotSource is the pool as autopilot sees the servers.
type autopilotSource struct {
	pool      *member.Pool
	takesPart func(member.Member) bool
}

// Servers implements group.MemberSource.
func (s autopilotSource) Servers() []group.ServerInfo {
	var list []group.ServerInfo
	for _, m := range s.pool.Members(member.ActSuggestServer) {
		if !s.takesPart(m) {
			continue
		}
		status := group.MemberAlive
		switch m.Status {
		case member.Failed:
			status = group.MemberFailed
		case member.Left, member.Leaving:
			status = group.MemberLeft
		}
		list = append(list, group.ServerInfo{ID: m.Tags["id"], Name: m.Name, Address: memberRPC(m), Version: version.Contract,
			Hearsay: true, Status: status, Replica: m.Tags["read_replica"] == "1", Meta: m.Tags})
	}
	return list
}
