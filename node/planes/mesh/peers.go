package meshplane

import (
	"net"
	"strconv"

	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/statestore"
	views "corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/ca"
)

// imported finds a service of a peer.
func imported(st *statestore.State, peer, service string) (*statestore.State, string, bool) {
	protocol, ok := peering.Exported(st, peer, service)
	if !ok {
		return nil, "", false
	}
	return peering.Imported(st, peer, service), protocol, true
}

// Own is this cluster's mesh, as peers are told of it.
type Own struct{ Datacenter string }

// Domain implements peers.Mesh.
func (Own) Domain(st *statestore.State) string {
	domain, err := ca.TrustDomainOf(st)
	if err != nil {
		return ""
	}
	return domain
}

// Gateways implements peers.Mesh.
func (o Own) Gateways(st *statestore.State) (addresses []string, through bool) {
	m := views.Maker{State: st, Datacenter: o.Datacenter}
	if !m.ThroughGateways() {
		return nil, false
	}
	for _, e := range m.Gateways(true) {
		addresses = append(addresses, net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port))))
	}
	return addresses, true
}

// Trust implements peers.Mesh.
func (o Own) Trust(st *statestore.State, peer string) *peered.Trust {
	domain := o.Domain(st)
	roots, err := ca.Roots(st)
	if err != nil || domain == "" || len(roots) == 0 {
		return nil // the leader is about to make the first
	}
	var list []string
	for _, r := range roots {
		list = append(list, r.RootCert)
	}
	m := views.Maker{State: st, Datacenter: o.Datacenter, TrustDomain: domain}
	return m.Own(peer, list)
}
