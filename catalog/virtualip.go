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

// ManualIPsKey is the key of a service's record: that of a peer's begins with the peer, whose name has no slash, that
// of ours with a slash where its name has one, else it could be a peer's.
func ManualIPsKey(peer, service string) string {
	key := strings.ToLower(service)
	if peer != "" || strings.Contains(key, "/") {
		return peer + "/" + key
	}
	return key
}

// RecordReader is what a State reads records by.
type RecordReader interface {
	Record(RecordKind, string) *Record
	RecordIndex(RecordKind, string) uint64
}

// ManualIPsOf are the addresses that a service was given.
func ManualIPsOf(st RecordReader, peer, service string) ManualIPs {
	key := ManualIPsKey(peer, service)
	r := st.Record(RecordVirtualIP, key)
	if r == nil && peer == "" {
		r = st.Record(RecordVirtualIP, strings.TrimPrefix(key, "/"))
	}
	if v := ReadManualIPs(r); v.Peer == peer {
		return v
	}
	return ManualIPs{}
}

// ManualIPsIndex is that of the last change of the addresses under a key.
func ManualIPsIndex(st RecordReader, key string) uint64 {
	return max(st.RecordIndex(RecordVirtualIP, key), st.RecordIndex(RecordVirtualIP, strings.TrimPrefix(key, "/")))
}

// KeyOfManualIPs is the key of the service that a record is of, wherever an older release stored it.
func KeyOfManualIPs(r *Record) string {
	if v := ReadManualIPs(r); v.Service != "" {
		return ManualIPsKey(v.Peer, v.Service)
	}
	return r.Key
}

// Moved is the operations that store addresses which an older release stored under a key that is a peer's now; none
// where that is not so. The first takes them from there.
func Moved(st RecordReader, r *Record) []RecordOp {
	key := KeyOfManualIPs(r)
	if key == r.Key {
		return nil
	}
	ops := []RecordOp{{Verb: RecordDeleteCAS, Record: Record{Kind: RecordVirtualIP, Key: r.Key,
		ModifyIndex: r.ModifyIndex}}}
	if st.Record(RecordVirtualIP, key) == nil {
		ops = append(ops, ReadManualIPs(r).Put(0))
	}
	return ops
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
