package catalog

import (
	"encoding/json"
	"slices"
	"strings"
)

// ManualIPs are the addresses by which callers in the mesh mean a service: those that an operator gave it, or that of a
// peer's service, which it gets when it is imported. An address is one service's at a time.
type ManualIPs struct {
	Service string
	Peer    string   `json:",omitempty"` // whose service it is; "" for this cluster's
	IPs     []string // in order, without repetition
}

// ManualIPsKey is the key of a service's record. No name of a peer has a slash.
func ManualIPsKey(peer, service string) string {
	if peer != "" {
		return peer + "/" + strings.ToLower(service)
	}
	return strings.ToLower(service)
}

// ReadManualIPs reads a record of kind RecordVirtualIP; nil is read as no addresses, and so is damage.
func ReadManualIPs(r *Record) ManualIPs {
	var v ManualIPs
	if r == nil || json.Unmarshal(r.Value, &v) != nil {
		return ManualIPs{}
	}
	return v
}

// Put is the operation that stores the addresses if the record is still the one of that index, 0 for none.
func (v ManualIPs) Put(index uint64) RecordOp {
	slices.Sort(v.IPs)
	v.IPs = slices.Compact(v.IPs)
	op := RecordOp{Verb: RecordCAS, Record: Record{Kind: RecordVirtualIP, Key: ManualIPsKey(v.Peer, v.Service),
		ModifyIndex: index}}
	if len(v.IPs) == 0 {
		op.Verb = RecordDeleteCAS
		return op
	}
	op.Record.Value, _ = json.Marshal(v) // texts have a JSON
	return op
}
