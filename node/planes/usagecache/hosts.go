package usagecacheplane

import (
	"strings"
	"sync/atomic"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/usage/slots"
)

// hosts are the hosts of the cache that the catalog knows.
type hosts struct {
	state    func() *statestore.State
	replicas int
	last     atomic.Pointer[divided]
}

// divided is the slots as of indexes of the catalog.
type divided struct {
	services, checks uint64
	slots            *slots.Map
}

// slots is who owns what now. It is worked out once for each change of the catalog.
func (h *hosts) slots() *slots.Map {
	st := h.state()
	services, checks := st.ServiceIndex(Service), st.ServiceChecksIndex(Service)
	if last := h.last.Load(); last != nil && last.services == services && last.checks == checks {
		return last.slots
	}
	d := &divided{services: services, checks: checks, slots: slots.Assign(nodesOf(st), h.replicas)}
	h.last.Store(d)
	return d.slots
}

// nodesOf lists the hosts that are sound, or drain.
func nodesOf(st *statestore.State) (list []slots.Node) {
	failed, draining := map[string]bool{}, map[string]bool{}
	for c := range st.ChecksOfService(Service) {
		id := c.Node + "/" + c.ServiceID
		switch {
		case strings.HasPrefix(c.ID, catalog.ServiceDrainPrefix):
			draining[id] = true
		case c.Status == catalog.Critical:
			failed[id] = true
		}
	}
	for s := range st.Instances(Service) {
		id := s.Node + "/" + s.ID
		health := st.Check(s.Node, catalog.SerfHealthID)
		if failed[id] || health != nil && health.Status == catalog.Critical {
			continue
		}
		n := slots.Node{ID: nodeID(s.Node, s.ID), Host: s.Address, Port: s.Port, Draining: draining[id]}
		if n.Host == "" {
			if node := st.Node(s.Node); node != nil {
				n.Host = node.Address
			}
		}
		list = append(list, n)
	}
	return list
}
