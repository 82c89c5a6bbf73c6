package base

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/cloudjoin"
)

// MethodKeyring is the RPC by which a server tells a member to change its keyring.
const MethodKeyring = "gossip.keys"

// TagAway in a server's gossip tags asks others to use another one while there is one: it starts, or it drains.
const TagAway = "away"

// Gossip is the pool of this datacenter, and what this process tells it of itself.
type Gossip struct {
	Pool *member.Pool

	tagMu sync.Mutex        // guards added; held while the pool is told, so that the last word is the newest
	added map[string]string // tags that come and go while the process runs
}

// Roles in the tags of members.
const (
	RoleServer = "consul"
	RoleAgent  = "node"
)

// Tags are this process's gossip tags.
func (b *Base) Tags() map[string]string {
	b.tagMu.Lock()
	defer b.tagMu.Unlock()
	return b.describe()
}

// describe describes this process to the pool in the contract's words, and in added ones. The caller holds tagMu.
func (b *Base) describe() map[string]string {
	cfg := b.Cfg
	t := map[string]string{
		"role": RoleAgent, "dc": cfg.Node.Datacenter, "id": b.ID, "vsn": "2", "vsn_min": "2", "vsn_max": "3",
		"build": version.Contract + ":corbel" + version.Number, "port": strconv.Itoa(b.RPCPort()),
	}
	if !cfg.Server {
		return t
	}
	t["role"], t["raft_vsn"], t["acls"] = RoleServer, "3", "0"
	if cfg.ACL.Enabled {
		t["acls"] = "1"
	}
	if cfg.Raft.Bootstrap || cfg.Dev {
		t["bootstrap"] = "1"
	}
	if n := cfg.Raft.BootstrapExpect; n > 0 {
		t["expect"] = strconv.Itoa(n)
	}
	if cfg.Raft.ReadReplica {
		t["read_replica"] = "1"
	}
	maps.Copy(t, b.added)
	t[version.TagFeatures] = b.features()
	return t
}

// features are those of version.Features that this server has switched on; the planes with a group of their own among
// them have a tag of their name. The caller holds tagMu.
func (b *Base) features() string {
	cfg := b.Cfg
	var list []string
	for name, on := range map[string]bool{"acl": cfg.ACL.Enabled, "auto_encrypt": cfg.AutoEncrypt.AllowTLS,
		"federation": len(cfg.Gossip.RetryJoinWAN)+len(cfg.Gossip.StartJoinWAN) > 0, "gossip_key": cfg.Gossip.Encrypt != "",
		"mesh": cfg.Connect.Enabled, "monitor": cfg.Monitor.Enabled, "read_replica": cfg.Raft.ReadReplica,
		"secrets": len(cfg.Secrets) > 0} {
		if on {
			list = append(list, name)
		}
	}
	for name, value := range b.added {
		if value == "1" && !strings.HasSuffix(name, "_joined") && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	if slices.Contains(list, "jobs") {
		list = append(list, version.JobsOrder)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// DeclareTag adds a tag before Run: it is part of the first word about this process. Who founds a plane's group goes by
// it.
func (b *Base) DeclareTag(key, value string) {
	b.tagMu.Lock()
	defer b.tagMu.Unlock()
	b.added[key] = value
	if err := member.Declare(b.Pool, b.describe()); err != nil {
		b.Log.Error("cannot announce what this process does", "tag", key, "error", err)
	}
}

// AddTag adds a tag to this process's description, or with "" takes one away, and tells the pool.
func (b *Base) AddTag(ctx context.Context, key, value string) error {
	b.tagMu.Lock()
	defer b.tagMu.Unlock()
	if b.added[key] = value; value == "" {
		delete(b.added, key)
	}
	tags := b.describe()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return b.Pool.SetTags(ctx, tags)
}

// MemberRPC is where the RPC port of a member is.
func MemberRPC(m member.Member) string { return net.JoinHostPort(m.Addr, m.Tags["port"]) }

// OtherServers are the RPC addresses of the servers to ask: living ones other than this process, without those that
// start or drain while there are others.
func (b *Base) OtherServers() []string {
	all, staying := b.servers()
	if len(staying) > 0 {
		return staying
	}
	return all
}

// LivingServers are the RPC addresses of living servers other than this process.
func (b *Base) LivingServers() []string {
	all, _ := b.servers()
	return all
}

// AnyServer is one of those to ask.
func (b *Base) AnyServer() (string, error) { return b.Others.Pick() }

func (b *Base) servers() (all, staying []string) {
	for _, m := range b.Pool.Members(member.ActAskServer) {
		if m.Status != member.Alive || m.Name == b.Cfg.Node.Name {
			continue
		}
		all = append(all, MemberRPC(m))
		if m.Tags[TagAway] == "" {
			staying = append(staying, MemberRPC(m))
		}
	}
	return all, staying
}

// accept refuses members of other datacenters: their names and indexes mean other things.
func (b *Base) accept(m member.Member) error {
	if dc := m.Tags["dc"]; dc != "" && dc != b.Cfg.Node.Datacenter {
		return fmt.Errorf("member %s belongs to datacenter %s, this one is %s", m.Name, dc, b.Cfg.Node.Datacenter)
	}
	return nil
}

// carryKeys brings a key operation to a member of this datacenter, which has a certificate of the authority.
func (b *Base) carryKeys(ctx context.Context, to member.Member, req []byte) ([]byte, error) {
	return b.Members.Call(ctx, MemberRPC(to), MethodKeyring, req)
}

// join joins the pool as start_join and retry_join say.
func (b *Base) join(ctx context.Context) error {
	g := &b.Cfg.Gossip
	return JoinPool(ctx, b.Pool, JoinPlan{Start: g.StartJoin, Retry: g.RetryJoin, Interval: g.RetryInterval,
		Most: g.RetryMax})
}

// JoinPlan is whom to join: addresses, and entries for clouds (node/cloudjoin). Suffix ends the names of the keys in
// errors.
type JoinPlan struct {
	Start, Retry []string
	Interval     time.Duration
	Most         int
	Suffix       string
}

// JoinPool joins a pool that Run has opened, and waits for ctx to end.
func JoinPool(ctx context.Context, pool *member.Pool, plan JoinPlan) error {
	select {
	case <-pool.Ready():
	case <-ctx.Done():
		return nil
	}
	var clouds cloudjoin.Asker
	among := func(list []string) member.Find {
		return func(ctx context.Context) ([]string, error) { return clouds.Resolve(ctx, list) }
	}
	if len(plan.Start) > 0 {
		if _, err := pool.JoinFound(ctx, among(plan.Start)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("start_join%s: %w", plan.Suffix, err)
		}
	}
	if len(plan.Retry) > 0 {
		find := among(plan.Retry)
		// Joining the same pool quickly matters most in its first seconds. A cloud refuses a fleet that asks each second.
		quick := !slices.ContainsFunc(plan.Retry, cloudjoin.Is)
		var err error
		if quick {
			err = pool.JoinRetry(ctx, find, min(plan.Interval, time.Second), 10)
		}
		for pause := 2 * time.Second; quick && err != nil && ctx.Err() == nil && pause < plan.Interval; pause *= 2 {
			err = pool.JoinRetry(ctx, find, pause, 2) // one that is late is found soon after it has come
		}
		if !quick || err != nil && ctx.Err() == nil {
			err = pool.JoinRetry(ctx, find, plan.Interval, plan.Most)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("retry_join%s: %w", plan.Suffix, err)
		}
	}
	<-ctx.Done()
	return nil
}
