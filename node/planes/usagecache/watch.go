package usagecacheplane

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/copies"
	"corbel.dev/corbel/usage/slots"
)

// watchEvery is how often each host of a cluster asks the others for a sign of life. A host whose process has ended
// refuses connections: what is asked of its keys waits from then on, and after goneAfter the catalog's leader says that
// it is gone. Gossip takes about five seconds for the same; it still finds hosts that say nothing at all.
const (
	watchEvery = 300 * time.Millisecond
	goneAfter  = time.Second
)

// watch knows which hosts have refused connections, and since when.
type watch struct {
	p     *Plane
	since map[string]time.Time // run alone uses it
	gone  atomic.Pointer[map[string]bool]
}

// isGone says whether a host's process has ended, as far as this host knows.
func (w *watch) isGone(host string) bool {
	m := w.gone.Load()
	return m != nil && (*m)[host]
}

// run watches until ctx ends.
func (w *watch) run(ctx context.Context) error {
	for {
		t := w.p.d.Clock.NewTimer(watchEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		w.look(ctx)
	}
}

// look asks all hosts once.
func (w *watch) look(ctx context.Context) {
	nodes := w.p.hosts.view().Map.Nodes()
	refused := w.ask(ctx, nodes)
	now, gone := w.p.d.Clock.Now(), map[string]bool{}
	maps.DeleteFunc(w.since, func(host string, _ time.Time) bool { return !refused[host] })
	for host := range refused {
		if w.since[host].IsZero() {
			w.since[host] = now
		}
		gone[host] = true
		if now.Sub(w.since[host]) >= goneAfter {
			w.tell(ctx, host)
		}
	}
	w.gone.Store(&gone)
}

// ask returns the hosts that refuse connections.
func (w *watch) ask(ctx context.Context, nodes []slots.Node) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	nothing := pack.Uint(pack.Uint(pack.String(nil, w.p.hosts.self), 1), 0) // forgets the copies of no blocks
	var mu sync.Mutex
	var wg sync.WaitGroup
	refused := map[string]bool{}
	for _, n := range nodes {
		if n.ID == w.p.hosts.self {
			continue
		}
		wg.Go(func() {
			if _, err := w.p.hosts.call(ctx, n.ID, copies.MethodForget, nothing); neterr.Refused(err) {
				mu.Lock()
				defer mu.Unlock()
				refused[n.ID] = true
			}
		})
	}
	wg.Wait()
	return refused
}

// tell has the catalog say that a host's cache is gone, where this server leads the catalog. It says so in the check of
// that host, which sets it again when it is back: each change counts as one after which others may have owned its keys.
func (w *watch) tell(ctx context.Context, host string) {
	h := w.p.hosts
	if raft := h.d.Catalog.Raft.Load(); raft == nil || !raft.IsLeader() {
		return
	}
	st := h.state()
	for c := range st.ChecksOfService(Service) {
		if nodeID(c.Node, c.ServiceID) != host || strings.HasPrefix(c.ID, catalog.ServiceDrainPrefix) ||
			c.Status == catalog.Critical {
			continue
		}
		node := st.Node(c.Node)
		if node == nil {
			return
		}
		failed := *c
		failed.Status, failed.Output = catalog.Critical, "The process has ended: its host refuses connections."
		ctx, cancel := context.WithTimeout(ctx, catalogPatience)
		_, err := h.d.Catalog.Registry.Apply(ctx, &catalog.Register{Node: *node, SkipNodeUpdate: true,
			Checks: []*catalog.Check{&failed}})
		cancel()
		if err != nil {
			w.p.d.Log.Warn("the catalog was not told that a cache host is gone", "node", c.Node, "error", err)
			return
		}
		w.p.d.Log.Info("a cache host is gone: others take its keys", "node", c.Node)
		return
	}
}
