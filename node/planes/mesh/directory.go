package meshplane

import (
	"context"
	"sync"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/catalog/statestore"
)

// directory is the registered proxies: of this host's agent, and on servers of the whole catalog.
type directory struct {
	local *local.Local
	node  string
	state func() *statestore.State // nil on client agents

	mu      sync.Mutex
	version uint64
	changed chan struct{} // closed and replaced with each version
}

// Find implements host.Directory.
func (d *directory) Find(node, id string) *catalog.Service {
	if node == d.node {
		if s := d.local.Service(id); s != nil {
			return s.ForProxy()
		}
	}
	if d.state == nil {
		return nil
	}
	return d.state().Service(node, id)
}

// List implements host.Directory.
func (d *directory) List() []*catalog.Service {
	var list []*catalog.Service
	for _, s := range d.local.View().Services {
		if s.Service.Kind != catalog.KindTypical {
			list = append(list, s.ForProxy())
		}
	}
	return list
}

// Await implements host.Directory.
func (d *directory) Await(ctx context.Context, since uint64) uint64 {
	for {
		d.mu.Lock()
		version, changed := d.version, d.changed
		d.mu.Unlock()
		if version != since {
			return version
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return since
		}
	}
}

func (d *directory) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version++
	close(d.changed)
	d.changed = make(chan struct{})
}

// applied hears of each batch of the log on a server: proxies may have changed, or all is another state.
func (d *directory) applied(_ *statestore.State, c *catalog.Changes) {
	if c == nil {
		d.tell()
		return
	}
	for i := range c.Services {
		for _, s := range []*catalog.Service{c.Services[i].Before, c.Services[i].After} {
			if s != nil && s.Kind != catalog.KindTypical {
				d.tell()
				return
			}
		}
	}
}

// follow tells of changes at this host's agent.
func (d *directory) follow(ctx context.Context) error {
	version := uint64(0)
	for ctx.Err() == nil {
		if v := d.local.Await(ctx, version); v.Version != version {
			version = v.Version
			d.tell()
		}
	}
	return nil
}
