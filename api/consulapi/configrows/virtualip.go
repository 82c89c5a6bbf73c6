package configrows

import (
	"net/netip"
	"slices"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

const (
	maxManualIPs = 64 // of one service
	ipTries      = 16 // how often an assignment is decided again because others change the same services
)

// peeredName names a service whose addresses were taken.
type peeredName struct {
	ServiceName struct{ Name, Namespace, Partition string }
	Peer        string `json:",omitempty"`
}

// setVirtualIPs gives a service the addresses, and takes them from whoever has them.
func setVirtualIPs(q *rows.Request) error {
	if err := q.Allow(acl.Mesh, "", acl.Write); err != nil {
		return err
	}
	var in struct {
		Service    string
		Peer       string // ours: the address of a service of a peer
		ManualVIPs []string
	}
	if err := q.Decode(&in); err != nil {
		return err
	}
	ips, err := manualIPs(in.Service, in.ManualVIPs)
	if err != nil {
		return err
	}
	for range ipTries {
		if _, err := q.Registry.Read(q.R.Context(), registry.Default); err != nil {
			return err // of kind NotLeader: the leader answers
		}
		st := q.Registry.State()
		out := struct {
			Found          bool
			UnassignedFrom []peeredName
		}{Found: hasService(st, in.Peer, in.Service)}
		if !out.Found {
			return q.ReplyValue(out)
		}
		if ops := moves(st); len(ops) > 0 {
			if _, err := q.SetRecords(ops...); err != nil {
				return err
			}
			continue // with what is there now
		}
		ops, taken := assign(st, catalog.ManualIPs{Service: in.Service, Peer: in.Peer, IPs: ips})
		for _, from := range taken {
			p := peeredName{Peer: from.Peer}
			p.ServiceName.Name, p.ServiceName.Namespace, p.ServiceName.Partition = from.Service, "default", "default"
			out.UnassignedFrom = append(out.UnassignedFrom, p)
		}
		ok, err := q.SetRecords(ops...)
		if err != nil {
			return err
		}
		if ok {
			return q.ReplyValue(out)
		}
	}
	return errkind.New(errkind.Overloaded, "the addresses are being changed by others all the time")
}

func manualIPs(service string, list []string) ([]string, error) {
	if service == "" {
		return nil, answer.Invalidf("Service is missing")
	}
	if len(list) > maxManualIPs {
		return nil, answer.Invalidf("ManualVIPs: %d addresses, at most %d are taken", len(list), maxManualIPs)
	}
	ips := make([]string, 0, len(list))
	for i, text := range list {
		a, err := netip.ParseAddr(text)
		if err != nil || a.IsUnspecified() || a.Zone() != "" {
			return nil, answer.Invalidf("ManualVIPs[%d]: %q is no address of a service", i, text)
		}
		ips = append(ips, a.Unmap().String())
	}
	return ips, nil
}

// hasService tells whether anybody speaks of the service: an instance, or an entry about how it is reached.
func hasService(st *statestore.State, peer, name string) bool {
	if peer != "" {
		_, ok := peering.Exported(st, peer, name)
		return ok
	}
	for range st.Instances(name) {
		return true
	}
	for range st.ConnectInstances(name) {
		return true
	}
	return slices.ContainsFunc([]string{entry.ServiceResolver, entry.ServiceRouter, entry.ServiceSplitter,
		entry.ServiceDefaults}, func(kind string) bool {
		return st.Record(catalog.RecordConfigEntry, entry.Key(kind, name)) != nil
	})
}

// moves is what stores addresses anew that an older release stored under keys which may be a peer's.
func moves(st *statestore.State) (ops []catalog.RecordOp) {
	for r := range st.Records(catalog.RecordVirtualIP, "") {
		ops = append(ops, catalog.Moved(st, r)...)
	}
	return ops
}

// assign is what gives a service its addresses, and those who lose one.
func assign(st *statestore.State, to catalog.ManualIPs) (ops []catalog.RecordOp, taken []catalog.ManualIPs) {
	index := uint64(0)
	for r := range st.Records(catalog.RecordVirtualIP, "") {
		has := catalog.ReadManualIPs(r)
		if strings.EqualFold(has.Service, to.Service) && has.Peer == to.Peer {
			index = r.ModifyIndex
			continue
		}
		left := slices.DeleteFunc(slices.Clone(has.IPs), func(ip string) bool { return slices.Contains(to.IPs, ip) })
		if len(left) < len(has.IPs) {
			taken = append(taken, has)
			ops = append(ops, catalog.ManualIPs{Service: has.Service, Peer: has.Peer, IPs: left}.Put(r.ModifyIndex))
		}
	}
	if index > 0 || len(to.IPs) > 0 {
		ops = append(ops, to.Put(index))
	}
	return ops, taken
}
