package catalog

import (
	"encoding/json"
	"slices"
)

// ManualIPs are the addresses that an operator gave a service, by which callers in the mesh mean it. An address is one
// service's at a time.
type ManualIPs struct {
	Service string
	IPs     []string // in order, without repetition
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
	op := RecordOp{Verb: RecordCAS, Record: Record{Kind: RecordVirtualIP, Key: lower(v.Service), ModifyIndex: index}}
	if len(v.IPs) == 0 {
		op.Verb = RecordDeleteCAS
		return op
	}
	op.Record.Value, _ = json.Marshal(v) // texts have a JSON
	return op
}
