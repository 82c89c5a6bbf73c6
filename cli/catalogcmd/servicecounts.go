package catalogcmd

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/client"
)

// askAtOnce bounds the questions under way: an agent answers them from what it follows.
const askAtOnce = 8

// nodeLine is a node with the counts of what is on it.
type nodeLine struct {
	client.Node
	Status string
	client.Tally
}

// countServices counts the instances of the services that a query selects, the worst first.
func countServices(ctx context.Context, cl *client.Client, q client.Query) ([]client.ServiceCount, client.Meta, error) {
	all := q
	all.Filter = ""
	counts, meta, err := cl.ServiceCounts(ctx, all)
	if unknown(err) { // a server that does not count
		services, meta, err := cl.Services(ctx, q)
		if err != nil {
			return nil, meta, err
		}
		counts, _, err := askEach(ctx, cl, q, services)
		return counts, meta, err
	}
	if err == nil && q.Filter != "" {
		var chosen map[string][]string
		if chosen, _, err = cl.Services(ctx, once(q)); err == nil {
			counts = slices.DeleteFunc(counts, func(c client.ServiceCount) bool { return chosen[c.Name] == nil })
		}
	}
	if err != nil {
		return nil, meta, err
	}
	slices.SortStableFunc(counts, func(a, b client.ServiceCount) int {
		return cmp.Or(worse(&a.Tally, &b.Tally), strings.Compare(a.Name, b.Name))
	})
	return counts, meta, nil
}

// countNodes adds to nodes, which read gives, what is on them; the worst come first unless the order is by distance.
func countNodes(ctx context.Context, cl *client.Client, q client.Query, read func(context.Context,
	client.Query) ([]client.Node, client.Meta, error)) ([]nodeLine, client.Meta, error) {
	counts, meta, err := cl.NodeCounts(ctx, client.Query{Datacenter: q.Datacenter, Stale: q.Stale,
		Consistent: q.Consistent, Index: q.Index, Wait: q.Wait})
	known := map[string]*client.NodeCount{}
	if unknown(err) { // a server that does not count
		var services map[string][]string
		if services, meta, err = cl.Services(ctx, client.Query{Datacenter: q.Datacenter, Stale: q.Stale, Index: q.Index,
			Wait: q.Wait}); err == nil {
			_, known, err = askEach(ctx, cl, q, services)
		}
	}
	if err != nil {
		return nil, meta, err
	}
	for i := range counts {
		known[counts[i].Node] = &counts[i]
	}
	nodes, _, err := read(ctx, once(q))
	if err != nil {
		return nil, meta, err
	}
	lines := make([]nodeLine, len(nodes))
	for i, n := range nodes {
		lines[i].Node = n
		if c := known[n.Node]; c != nil {
			lines[i].Status, lines[i].Tally = c.Status, c.Tally
		}
	}
	if q.Near == "" {
		slices.SortStableFunc(lines, func(a, b nodeLine) int {
			return cmp.Or(worse(&a.Tally, &b.Tally), cmp.Compare(severity(b.Status), severity(a.Status)),
				strings.Compare(a.Node.Node, b.Node.Node))
		})
	}
	return lines, meta, nil
}

// once is a query that does not wait for a change.
func once(q client.Query) client.Query {
	q.Index, q.Wait = 0, 0
	return q
}

func unknown(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Code == http.StatusNotFound
}

func worse(a, b *client.Tally) int {
	return cmp.Or(cmp.Compare(b.Critical, a.Critical), cmp.Compare(b.Warning, a.Warning))
}

func severity(status string) int {
	return slices.Index([]string{"passing", "warning", "critical", "maintenance"}, status)
}

// askEach asks for the health of each service, and counts by service and by node.
func askEach(ctx context.Context, cl *client.Client, q client.Query,
	services map[string][]string) ([]client.ServiceCount, map[string]*client.NodeCount, error) {
	names := slices.Sorted(maps.Keys(services))
	counts, failed := make([]client.ServiceCount, len(names)), make([]error, len(names))
	nodes := map[string]*client.NodeCount{}
	var mu sync.Mutex // of nodes
	var wg sync.WaitGroup
	turns := make(chan struct{}, askAtOnce)
	of := client.Query{Datacenter: q.Datacenter, Stale: q.Stale}
	for i, name := range names {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			counts[i] = client.ServiceCount{Name: name, Tags: services[name]}
			entries, _, err := cl.Service(ctx, name, false, of)
			failed[i] = err
			mu.Lock()
			defer mu.Unlock()
			for j := range entries {
				e := &entries[j]
				n := nodes[e.Node.Node]
				if n == nil {
					n = &client.NodeCount{Node: e.Node.Node, Status: "passing"}
					nodes[e.Node.Node] = n
				}
				own := client.Worst(slices.DeleteFunc(slices.Clone(e.Checks),
					func(c client.Check) bool { return c.ServiceID != "" }))
				if severity(own) > severity(n.Status) {
					n.Status = own
				}
				tell(&counts[i].Tally, e.Status())
				tell(&n.Tally, e.Status())
			}
		})
	}
	wg.Wait()
	slices.SortStableFunc(counts, func(a, b client.ServiceCount) int {
		return cmp.Or(worse(&a.Tally, &b.Tally), strings.Compare(a.Name, b.Name))
	})
	return counts, nodes, errors.Join(failed...)
}

func tell(t *client.Tally, status string) {
	t.Instances++
	switch status {
	case "passing":
		t.Passing++
	case "warning":
		t.Warning++
	default:
		t.Critical++
	}
}
