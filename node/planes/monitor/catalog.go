package monitorplane

import (
	"context"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/fleet"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
)

// MethodCatalog is the RPC by which checks of the monitor plane reach the catalog's leader.
const MethodCatalog = "catalog.monitored"

// maxCatalogOps bounds one such call.
const maxCatalogOps = 4096

// catalogOf is the catalog of this server as the monitor plane sees it.
type catalogOf struct{ raft *raftgroup.Group }

// Current implements fleet.Catalog.
func (c catalogOf) Current() bool {
	return c.raft.LeaderAddr() != "" && (c.raft.IsLeader() || c.raft.LastContact() <= raftgroup.Silent)
}

// Version implements fleet.Catalog: both indexes only grow.
func (c catalogOf) Version() uint64 {
	st := c.raft.Registry.State()
	return st.NodesIndex() + st.ChecksIndex()
}

// Nodes implements fleet.Catalog.
func (c catalogOf) Nodes(f func(name string)) {
	for n := range c.raft.Registry.State().Nodes() {
		f(n.Name)
	}
}

// Node implements fleet.Catalog.
func (c catalogOf) Node(name string) (n fleet.Node, ok bool) {
	st := c.raft.Registry.State()
	node := st.Node(name)
	if node == nil {
		return n, false
	}
	n.Name = node.Name
	for s := range st.ServicesOfNode(name) {
		n.Instances = append(n.Instances, fleet.Instance{ID: s.ID, Service: s.Name})
	}
	for check := range st.ChecksOfNode(name) {
		n.Checks = append(n.Checks, fleetCheck(check))
	}
	return n, true
}

// Check implements fleet.Catalog.
func (c catalogOf) Check(node, id string) (out fleet.Check, ok bool) {
	check := c.raft.Registry.State().Check(node, id)
	if check == nil {
		return out, false
	}
	return fleetCheck(check), true
}

// Known implements fleet.Catalog.
func (c catalogOf) Known(node string) (known, gossips bool) {
	st := c.raft.Registry.State()
	return st.Node(node) != nil, st.Check(node, catalog.SerfHealthID) != nil
}

func fleetCheck(c *catalog.Check) fleet.Check {
	return fleet.Check{ID: c.ID, Name: c.Name, Service: c.ServiceID, Status: fleet.Health(c.Status), Output: c.Output}
}

// Write implements fleet.Catalog.
func (c catalogOf) Write(ctx context.Context, writes []fleet.Write) (refused int, err error) {
	txn := &catalog.Txn{}
	for _, w := range writes {
		op := catalog.TxnOp{Verb: catalog.TxnSet, Check: &catalog.Check{Node: w.Node, ID: w.ID, Name: w.Name,
			ServiceID: w.Service, Status: catalog.Health(w.Status), Output: w.Output, Type: "monitor"}}
		if w.Remove {
			op.Verb = catalog.TxnDelete
		}
		txn.Ops = append(txn.Ops, op)
	}
	if c.raft.IsLeader() {
		return c.apply(ctx, txn)
	}
	leader, err := c.raft.Target()
	if err != nil {
		return 0, err
	}
	reply, err := c.raft.Base.RPC.Call(ctx, leader, MethodCatalog, catalog.EncodeCommand(nil, txn))
	if err != nil {
		return 0, err
	}
	r := pack.Read(reply)
	refused = int(r.Uint())
	return refused, r.Err()
}

// apply does all of a transaction that is not refused: a service may have left since it was planned.
func (c catalogOf) apply(ctx context.Context, txn *catalog.Txn) (refused int, err error) {
	for len(txn.Ops) > 0 {
		result, err := c.raft.Registry.Apply(ctx, txn)
		if err != nil {
			return refused, err
		}
		wrong := map[int]bool{}
		for _, e := range result.TxnErrors {
			wrong[e.OpIndex] = true
		}
		if len(wrong) == 0 {
			return refused, result.Err
		}
		c.raft.Base.Log.Debug("the catalog refused checks of the monitor", "first", result.TxnErrors[0].What,
			"count", len(wrong))
		refused += len(wrong)
		rest := &catalog.Txn{}
		for i, op := range txn.Ops {
			if !wrong[i] {
				rest.Ops = append(rest.Ops, op)
			}
		}
		txn = rest
	}
	return refused, nil
}

// serve implements MethodCatalog. Only the plane's own checks may come this way.
func (c catalogOf) serve(ctx context.Context, req []byte) ([]byte, error) {
	cmd, err := catalog.DecodeCommand(req)
	if err != nil {
		return nil, err
	}
	txn, ok := cmd.(*catalog.Txn)
	if !ok || len(txn.Ops) > maxCatalogOps {
		return nil, errkind.New(errkind.Invalid, "only transactions of checks may come this way")
	}
	for _, op := range txn.Ops {
		if op.Check == nil || op.KV != nil || op.Node != nil || op.Service != nil ||
			!strings.HasPrefix(op.Check.ID, catalog.MonitorPrefix) ||
			op.Verb != catalog.TxnSet && op.Verb != catalog.TxnDelete {
			return nil, errkind.New(errkind.Invalid, "only checks of the monitor may come this way")
		}
	}
	refused, err := c.apply(ctx, txn)
	if err != nil {
		return nil, err
	}
	return pack.Uint(nil, uint64(refused)), nil
}

// clusterID is the identity of the cluster; "" before it has one.
func clusterID(d *plane.Doors) string {
	if r := d.Catalog.Registry.State().Record(catalog.RecordSystem, catalog.ClusterIDKey); r != nil {
		return string(r.Value)
	}
	return ""
}
