package uiplane

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

const (
	// maxChanges bounds what is remembered; the oldest goes.
	maxChanges = 1000
	// changeLook is how exactly the time of a registration is known: the catalog keeps none.
	changeLook = 5 * time.Second
	// changesEvery is how often they are told: what came before is no news, and asks for all jobs.
	changesEvery = 5 * time.Second
	// changesBefore is how far back from an event a cause is looked for.
	changesBefore = time.Hour
)

// change is something that came or went in the catalog, as this server saw it.
type change struct {
	at         int64 // ms since 1970
	node       bool  // it is a node; else a service
	name       string
	from, till int // instances before and after
}

// changes remembers what came and went since this server started. It is safe for concurrent use.
type changes struct {
	mu   sync.Mutex
	list []change // guarded by mu; the oldest first

	// The rest belongs to Run.
	index    uint64
	services map[string]int
	nodes    map[string]bool
}

// run looks at the catalog until ctx ends.
func (c *changes) run(ctx context.Context, state func() *statestore.State, now func() time.Time) {
	t := time.NewTicker(changeLook)
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
func (c *changes) look(st *statestore.State, now int64) {
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
	var fresh []change
	if c.services != nil {
		for name, n := range services {
			if before := c.services[name]; before != n {
				fresh = append(fresh, change{at: now, name: name, from: before, till: n})
			}
		}
		for name, before := range c.services {
			if _, there := services[name]; !there {
				fresh = append(fresh, change{at: now, name: name, from: before})
			}
		}
		for name := range nodes {
			if !c.nodes[name] {
				fresh = append(fresh, change{at: now, node: true, name: name, till: 1})
			}
		}
		for name := range c.nodes {
			if !nodes[name] {
				fresh = append(fresh, change{at: now, node: true, name: name, from: 1})
			}
		}
	}
	c.index, c.services, c.nodes = st.Index(), services, nodes
	slices.SortFunc(fresh, func(a, b change) int { return cmp.Compare(a.name, b.name) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fresh...)
	c.list = slices.Clone(c.list[max(0, len(c.list)-maxChanges):])
}

// between are the changes after from, up to till.
func (c *changes) between(from, till int64) (out []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.list {
		if one.at > from && one.at <= till {
			out = append(out, one)
		}
	}
	return out
}

// changeRow is a change as the page shows it.
type changeRow struct {
	At   int64  `json:"at"`
	Kind string `json:"kind"` // service, node, job
	Name string `json:"name"`
	What string `json:"what"`
	Path string `json:"path"`
}

func (c *change) row() changeRow {
	switch {
	case c.node && c.till > 0:
		return changeRow{c.at, "node", c.name, "registered", "/nodes?q=" + url.QueryEscape(c.name)}
	case c.node:
		return changeRow{c.at, "node", c.name, "deregistered", "/nodes"}
	}
	return changeRow{c.at, "service", c.name, fmt.Sprintf("%d instances, before %d", c.till, c.from),
		"/services/" + url.PathEscape(c.name)}
}

// changesTopic shows what changed in the hour before a time, before= in ms since 1970: of what the person may read.
func (u *UI) changesTopic() *topic {
	return &topic{every: changesEvery, rights: u.rightsOfAll, make: func(ctx context.Context, p *uiapi.Person,
		q url.Values) (any, error) {
		g, err := u.d.Grant(ctx, p.Catalog)
		if err != nil {
			return nil, err
		}
		till, err := strconv.ParseInt(q.Get("before"), 10, 64)
		if err != nil || till <= 0 {
			till = u.d.Clock.Now().UnixMilli()
		}
		from, rows := till-changesBefore.Milliseconds(), []changeRow{}
		for _, c := range u.seen.between(from, till) {
			what := acl.Service
			if c.node {
				what = acl.Node
			}
			if g.Allow(what, c.name, acl.Read) {
				rows = append(rows, c.row())
			}
		}
		rows = append(rows, u.submitted(ctx, p, from, till)...)
		slices.SortStableFunc(rows, func(a, b changeRow) int { return cmp.Compare(b.At, a.At) })
		return rows[:min(len(rows), rowlists.RowsHere)], nil
	}}
}

// submitted are the jobs whose newest version came in a span of time.
func (u *UI) submitted(ctx context.Context, p *uiapi.Person, from, till int64) (rows []changeRow) {
	var jobs []struct {
		ID, Namespace, Status string
		Version               uint64
		SubmitTime            int64 // ns
		Stop                  bool
	}
	if u.jobs == nil || u.ask.Get(ctx, p, "jobs", "/v1/jobs?namespace=*", &jobs) != nil {
		return nil // the jobs screen says why they may not be seen
	}
	for i := range jobs {
		j := &jobs[i]
		at := j.SubmitTime / int64(time.Millisecond)
		if at <= from || at > till {
			continue
		}
		what := fmt.Sprintf("version %d submitted", j.Version)
		if j.Stop {
			what = "stopped"
		}
		rows = append(rows, changeRow{at, "job", j.ID, what,
			"/jobs/" + url.PathEscape(j.Namespace) + "/" + url.PathEscape(j.ID)})
	}
	return rows
}
