package catalogcmd

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/client"
)

// askAtOnce bounds the questions under way: an agent answers them from what it follows.
const askAtOnce = 8

// serviceCount is how many instances of a service are in which state.
type serviceCount struct {
	name                         string
	instances, warning, critical int
}

// countInstances asks for the health of each service, and puts the worst first.
func countInstances(ctx context.Context, cl *client.Client, q client.Query, names []string) ([]serviceCount, error) {
	counts, failed := make([]serviceCount, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	turns := make(chan struct{}, askAtOnce)
	of := client.Query{Datacenter: q.Datacenter, Stale: q.Stale}
	for i, name := range names {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			counts[i].name = name
			entries, _, err := cl.Service(ctx, name, false, of)
			failed[i] = err
			for j := range entries {
				counts[i].add(&entries[j])
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 {
		return nil, failed[i]
	}
	slices.SortStableFunc(counts, func(a, b serviceCount) int {
		return cmp.Or(cmp.Compare(b.critical, a.critical), cmp.Compare(b.warning, a.warning), strings.Compare(a.name, b.name))
	})
	return counts, nil
}

func (c *serviceCount) add(e *client.ServiceEntry) {
	c.instances++
	switch e.Status() {
	case "passing":
	case "warning":
		c.warning++
	default:
		c.critical++
	}
}
