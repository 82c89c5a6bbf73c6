package node

import (
	"context"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/fleet"
	"corbel.dev/corbel/node/raftgroup"
)

// methodFleet is the RPC by which checks of the monitor plane reach the catalog's leader.
const methodFleet = "catalog.monitored"

// maxFleetOps bounds one such call.
const maxFleetOps = 4096

// buildFleet makes what keeps the monitor and the catalog of one mind.
func (m *monitorPlane) buildFleet() {
	cfg := &m.p.Cfg.Monitor.Catalog
	if !cfg.Enabled {
		return
	}
	m.fleet = fleet.New(fleet.Config{Catalog: fleetCatalog{m.p}, Events: m.ingest, Namespace: cfg.Namespace,
		Failures: cfg.Failures, Handlers: cfg.Handlers,
		Pipelines: cfg.Pipelines, Proxy: m.resources.Proxy, Log: m.log, Now: m.p.Clock.Now})
}

// turned is told of each entity of which a check has another status that something of the catalog depends on.
func (m *monitorPlane) turned(namespace, entity string) {
	if m.fleet != nil {
		m.fleet.Turned(namespace, entity)
	}
}

// fleetCatalog is the catalog as the monitor plane sees it.
type fleetCatalog struct{ p *Process }

// Current implements fleet.Catalog.
func (c fleetCatalog) Current() bool {
	return c.p.raft.LeaderAddr() != "" && (c.p.raft.IsLeader() || c.p.raft.LastContact() <= raftgroup.Silent)
}

// Version implements fleet.Catalog: both indexes only grow.
func (c fleetCatalog) Version() uint64 {
	st := c.p.registry.State()
	return st.NodesIndex() + st.ChecksIndex()
}

// Nodes implements fleet.Catalog.
func (c fleetCatalog) Nodes(f func(name string)) {
	for n := range c.p.registry.State().Nodes() {
		f(n.Name)
	}
}

// Node implements fleet.Catalog.
func (c fleetCatalog) Node(name string) (n fleet.Node, ok bool) {
	st := c.p.registry.State()
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
func (c fleetCatalog) Check(node, id string) (out fleet.Check, ok bool) {
	check := c.p.registry.State().Check(node, id)
	if check == nil {
		return out, false
	}
	return fleetCheck(check), true
}

// Known implements fleet.Catalog.
func (c fleetCatalog) Known(node string) (known, gossips bool) {
	st := c.p.registry.State()
	return st.Node(node) != nil, st.Check(node, catalog.SerfHealthID) != nil
}

func fleetCheck(c *catalog.Check) fleet.Check {
	return fleet.Check{ID: c.ID, Name: c.Name, Service: c.ServiceID, Status: fleet.Health(c.Status), Output: c.Output}
}

// Write implements fleet.Catalog.
func (c fleetCatalog) Write(ctx context.Context, writes []fleet.Write) (refused int, err error) {
	txn := &catalog.Txn{}
	for _, w := range writes {
		op := catalog.TxnOp{Verb: catalog.TxnSet, Check: &catalog.Check{Node: w.Node, ID: w.ID, Name: w.Name,
			ServiceID: w.Service, Status: catalog.Health(w.Status), Output: w.Output, Type: "monitor"}}
		if w.Remove {
			op.Verb = catalog.TxnDelete
		}
		txn.Ops = append(txn.Ops, op)
	}
	if c.p.raft.IsLeader() {
		return c.p.applyFleet(ctx, txn)
	}
	reply, err := c.p.callLeader(ctx, methodFleet, catalog.EncodeCommand(nil, txn))
	if err != nil {
		return 0, err
	}
	r := pack.Read(reply)
	refused = int(r.Uint())
	return refused, r.Err()
}

// applyFleet does all of a transaction that is not refused: a service may have left since it was planned.
func (p *Process) applyFleet(ctx context.Context, txn *catalog.Txn) (refused int, err error) {
	for len(txn.Ops) > 0 {
		result, err := p.registry.Apply(ctx, txn)
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
		p.Log.Debug("the catalog refused checks of the monitor", "first", result.TxnErrors[0].What, "count", len(wrong))
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

// handleFleet serves methodFleet on every server: the catalog's leader may have no monitor plane. Only the plane's
// own checks may come this way.
func (p *Process) handleFleet(srv *rpc.Server) {
	srv.Handle(wire.Servers, methodFleet, func(ctx context.Context, req []byte) ([]byte, error) {
		c, err := catalog.DecodeCommand(req)
		if err != nil {
			return nil, err
		}
		txn, ok := c.(*catalog.Txn)
		if !ok || len(txn.Ops) > maxFleetOps {
			return nil, errkind.New(errkind.Invalid, "only transactions of checks may come this way")
		}
		for _, op := range txn.Ops {
			if op.Check == nil || op.KV != nil || op.Node != nil || op.Service != nil ||
				!strings.HasPrefix(op.Check.ID, catalog.MonitorPrefix) ||
				op.Verb != catalog.TxnSet && op.Verb != catalog.TxnDelete {
				return nil, errkind.New(errkind.Invalid, "only checks of the monitor may come this way")
			}
		}
		refused, err := p.applyFleet(ctx, txn)
		if err != nil {
			return nil, err
		}
		return pack.Uint(nil, uint64(refused)), nil
	})
}
