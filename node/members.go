package node

import (
	"context"

	"corbel.dev/corbel/api/consulapi/agentrows"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/core/member"
)

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
