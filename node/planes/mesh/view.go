package meshplane

import (
	"context"
	"time"

	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/mesh/host"
	"corbel.dev/corbel/mesh/leaf"
	"corbel.dev/corbel/node/base"
)

// View is this host's proxies as the API shows them, and the way to other members.
type View struct {
	*Host
	// Ask asks a member with GET, as a server.
	Ask func(ctx context.Context, node, path string) (status int, body []byte, err error)
}

func meshProxyOf(s host.Status) meshrows.MeshProxy {
	return meshrows.MeshProxy{Node: s.Node, ID: s.ID, Service: s.Service, State: s.State, Status: s}
}

// Proxies implements meshrows.Mesh.
func (v View) Proxies() []meshrows.MeshProxy {
	var list []meshrows.MeshProxy
	for _, s := range v.mesh.host.Status() {
		list = append(list, meshProxyOf(s))
	}
	return list
}

// Proxy implements meshrows.Mesh.
func (v View) Proxy(node, id string) (meshrows.MeshProxy, bool) {
	s, ok := v.mesh.host.Proxy(node, id)
	return meshProxyOf(s), ok
}

// Settled implements meshrows.Mesh.
func (v View) Settled(service string, index uint64) (known bool, proxies int, pending []string) {
	newest := v.Source.newest()
	proxies, pending = v.mesh.host.Settled(service)
	return newest >= index, proxies, pending
}

func (v View) members(keep func(member.Member) bool) []string {
	var list []string
	for _, m := range v.b.Pool.Members(member.ActAskMember) {
		if m.Status == member.Alive && keep(m) {
			list = append(list, m.Name)
		}
	}
	return list
}

// Alive implements meshrows.Mesh.
func (v View) Alive() []string { return v.members(func(member.Member) bool { return true }) }

// Servers implements meshrows.Mesh.
func (v View) Servers() []string {
	return v.members(func(m member.Member) bool { return m.Tags["role"] == base.RoleServer })
}

// Reach implements meshrows.Mesh.
func (v View) Reach(ctx context.Context, node, path string) (int, []byte, error) {
	return v.Ask(ctx, node, path)
}

// APILeaves are the leaf certificates as the API sees them.
type APILeaves struct{ *leaf.Leaves }

// Leaf implements meshrows.Leaves.
func (l APILeaves) Leaf(ctx context.Context, service, token string, index uint64, wait time.Duration) (meshrows.CALeaf,
	bool, error) {
	c, hit, err := l.Get(ctx, leaf.Query{Subject: leaf.Service(service), Token: token, Index: index, Wait: wait})
	if err != nil {
		return meshrows.CALeaf{}, false, err
	}
	return meshrows.CALeaf{SerialNumber: c.SerialNumber, CertPEM: c.CertPEM, PrivateKeyPEM: c.PrivateKeyPEM,
		Service:    service,
		ServiceURI: c.ID.URI().String(), ValidAfter: c.ValidAfter, ValidBefore: c.ValidBefore,
		CreateIndex: c.CreateIndex, ModifyIndex: c.ModifyIndex, Received: c.Received}, hit, nil
}

// Held implements meshrows.Leaves.
func (l APILeaves) Held() []meshrows.HeldLeaf {
	var list []meshrows.HeldLeaf
	for _, h := range l.Leaves.Held() {
		list = append(list, meshrows.HeldLeaf{Service: h.Subject.Name, SerialNumber: h.SerialNumber, RootID: h.RootID,
			ValidAfter: h.ValidAfter, ValidBefore: h.ValidBefore, Error: h.Failed})
	}
	return list
}
