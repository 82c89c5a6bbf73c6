package peering

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
)

// virtuals gives imported services the addresses by which redirected traffic means them. They are of 240.0.0.0/4,
// which nobody routes. Where a service's search begins follows from its name, so it gets the same one again, mostly.
type virtuals struct {
	st    *statestore.State
	taken map[netip.Addr]bool // nil until it is needed
}

// give is the operations that give a service an address; none where it has one, or nothing of the mesh stands before
// it.
func (v *virtuals) give(peer string, s *Service) (ops []catalog.RecordOp) {
	key, index := catalog.ManualIPsKey(peer, s.Name), uint64(0)
	if r := v.st.Record(catalog.RecordVirtualIP, key); r != nil {
		moved := catalog.Moved(v.st, r)
		if len(moved) == 0 {
			return nil
		}
		ops, index = moved[1:], r.ModifyIndex // it is of a service here that is called as the key is
	}
	if !s.meshed() {
		return nil
	}
	if v.taken == nil {
		v.taken = map[netip.Addr]bool{}
		for r := range v.st.Records(catalog.RecordVirtualIP, "") {
			for _, text := range catalog.ReadManualIPs(r).IPs {
				if a, err := netip.ParseAddr(text); err == nil {
					v.taken[a] = true
				}
			}
		}
	}
	sum := sha256.Sum256([]byte(key))
	n := binary.BigEndian.Uint32(sum[:])
	for ; ; n++ { // there are far more addresses than services are taken
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], n|0xf0000000)
		a := netip.AddrFrom4(b)
		if b[3] == 0 || b[3] == 255 || v.taken[a] {
			continue
		}
		v.taken[a] = true
		return append(ops, catalog.ManualIPs{Service: s.Name, Peer: peer, IPs: []string{a.String()}}.Put(index))
	}
}

// meshed tells whether proxies reach the service.
func (s *Service) meshed() bool {
	for i := range s.Instances {
		in := s.Instances[i].Service
		if in.Kind == catalog.KindConnectProxy || in.Native {
			return true
		}
	}
	return false
}

// dropVirtual is the operation that takes a service's address back, none where it has none.
func dropVirtual(st *statestore.State, key string) []catalog.RecordOp {
	if r := st.Record(catalog.RecordVirtualIP, key); r == nil || catalog.ReadManualIPs(r).Peer == "" {
		return nil
	}
	return []catalog.RecordOp{{Verb: catalog.RecordDelete,
		Record: catalog.Record{Kind: catalog.RecordVirtualIP, Key: key}}}
}
