// Package pastchanges remembers what came and went in the catalog: instances of services, and nodes. The catalog keeps
// no time of a registration: it is known as exactly as the catalog is looked at. What is remembered is bounded, and
// nothing of it outlives the process.
package pastchanges

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/catalog/statestore"
)

const (
	// most bounds what is remembered; the oldest goes.
	most = 1000
	// every is how often the catalog is looked at.
	every = 5 * time.Second
)

// Change is something that came or went in the catalog, as this server saw it.
type Change struct {
	At         int64 // ms since 1970
	Node       bool  // it is a node; else a service
	Name       string
	From, Till int // instances before and after
}

// Changes are what came and went since this server started. The zero value is ready, and safe for concurrent use.
type Changes struct {
	mu   sync.Mutex
	list []Change // guarded by mu; the oldest first

	// The rest belongs to Run.
	index    uint64
	services map[string]int
	nodes    map[string]bool
}

// Run looks at the catalog until ctx ends.
func (c *Changes) Run(ctx context.Context, state func() *statestore.State, now func() time.Time) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		c.look(state(), now().UnixMilli())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// look notes what differs from the look before. The first one only learns what there is.
func (c *Changes) look(st *statestore.State, now int64) {
	if st.Index() == c.index && c.services != nil {
		return
	}
	services, nodes := make(map[string]int, len(c.services)), make(map[string]bool, len(c.nodes))
	for s := range st.ServiceNames() {
		services[s.Name] = s.Instances
	}
	for n := range st.Nodes() {
		nodes[n.Name] = true
	}
	var fresh []Change
	if c.services != nil {
		for name, n := range services {
			if before := c.services[name]; before != n {
				fresh = append(fresh, Change{At: now, Name: name, From: before, Till: n})
			}
		}
		for name, before := range c.services {
			if _, there := services[name]; !there {
				fresh = append(fresh, Change{At: now, Name: name, From: before})
			}
		}
		for name := range nodes {
			if !c.nodes[name] {
				fresh = append(fresh, Change{At: now, Node: true, Name: name, Till: 1})
			}
		}
		for name := range c.nodes {
			if !nodes[name] {
				fresh = append(fresh, Change{At: now, Node: true, Name: name, From: 1})
			}
		}
	}
	c.index, c.services, c.nodes = st.Index(), services, nodes
	slices.SortFunc(fresh, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fresh...)
	c.list = slices.Clone(c.list[max(0, len(c.list)-most):])
}

// Between are the changes after from, up to till, the oldest first; both are ms since 1970.
func (c *Changes) Between(from, till int64) (out []Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.list {
		if one.At > from && one.At <= till {
			out = append(out, one)
		}
	}
	return out
}

// Row is a change as the page shows it.
type Row struct {
	At   int64  `json:"at"`
	Kind string `json:"kind"` // service, node, job
	Name string `json:"name"`
	What string `json:"what"`
	Path string `json:"path"`
}

// Row is the change as the page shows it.
func (c *Change) Row() Row {
	switch {
	case c.Node && c.Till > 0:
		return Row{c.At, "node", c.Name, "registered", "/nodes?q=" + url.QueryEscape(c.Name)}
	case c.Node:
		return Row{c.At, "node", c.Name, "deregistered", "/nodes"}
	}
	return Row{c.At, "service", c.Name, fmt.Sprintf("%d instances, before %d", c.Till, c.From),
		"/services/" + url.PathEscape(c.Name)}
}
