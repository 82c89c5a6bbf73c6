package node

import (
	"context"
	"time"

	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/sockets"
	"corbel.dev/corbel/mesh/host"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/forward"
)

// meshView is this host's proxies as the API shows them, and the way to other members.
type meshView struct{ p *Process }

func meshProxyOf(s host.Status) meshrows.MeshProxy {
	return meshrows.MeshProxy{Node: s.Node, ID: s.ID, Service: s.Service, State: s.State, Status: s}
}

// Proxies implements meshrows.Mesh.
func (v meshView) Proxies() []meshrows.MeshProxy {
	var list []meshrows.MeshProxy
	for _, s := range v.p.mesh.host.Status() {
		list = append(list, meshProxyOf(s))
	}
	return list
}

// Proxy implements meshrows.Mesh.
func (v meshView) Proxy(node, id string) (meshrows.MeshProxy, bool) {
	s, ok := v.p.mesh.host.Proxy(node, id)
	return meshProxyOf(s), ok
}

// Settled implements meshrows.Mesh.
func (v meshView) Settled(service string, index uint64) (known bool, proxies int, pending []string) {
	newest := uint64(0)
	if m := v.p.mesh; m.client != nil {
		newest = m.client.Newest()
	} else {
		_, newest = v.p.board.Newest()
	}
	proxies, pending = v.p.mesh.host.Settled(service)
	return newest >= index, proxies, pending
}

// connections implements agentrows.Connections.
func connections(ports []uint16, quiet time.Duration) (open, busy int, err error) {
	list, err := sockets.Established(ports...)
	for _, c := range list {
		open++
		if c.Busy(quiet) {
			busy++
		}
	}
	return open, busy, err
}

func (v meshView) members(keep func(member.Member) bool) []string {
	var list []string
	for _, m := range v.p.Pool.Members(member.ActAskMember) {
		if m.Status == member.Alive && keep(m) {
			list = append(list, m.Name)
		}
	}
	return list
}

// Alive implements meshrows.Mesh.
func (v meshView) Alive() []string { return v.members(func(member.Member) bool { return true }) }

// Servers implements meshrows.Mesh.
func (v meshView) Servers() []string {
	return v.members(func(m member.Member) bool { return m.Tags["role"] == base.RoleServer })
}

// reachTime bounds one question to a member.
const reachTime = 3 * time.Second

// Reach implements meshrows.Mesh.
func (v meshView) Reach(ctx context.Context, node, path string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if node == v.p.Cfg.Node.Name {
		answer, err := v.p.answerServer(ctx, path)
		if err != nil {
			return 0, nil, err
		}
		return answer.Status, answer.Body, nil
	}
	m, ok := v.p.Pool.Member(member.ActAskMember, node)
	if !ok {
		return 0, nil, errkind.Errorf(errkind.NotFound, "no member has the name %q", node)
	}
	reply, err := v.p.Members.Call(ctx, base.MemberRPC(m), methodAsk, pack.String(nil, path))
	if err != nil {
		return 0, nil, err
	}
	status, _, body, err := forward.DecodeReply(reply)
	return status, body, err
}
