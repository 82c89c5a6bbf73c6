package monitorplane

import (
	"context"
	"path/filepath"
	"time"

	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/logevents"
	"corbel.dev/corbel/monitor/eventstore/pgevents"
	"corbel.dev/corbel/monitor/fleet"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/janitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/shardrouter"
	"corbel.dev/corbel/monitor/subscribers"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
)

// Events takes results and has the events of the shards that are this server's; it finds all others.
type Events struct {
	d        *plane.Doors
	group    *Group
	Ingest   *ingest.Ingest      // of the shards that this server has
	Router   *shardrouter.Router // of all, wherever they are
	Postgres *pgevents.Store     // nil with the embedded store; the ingest closes it
	Fleet    *fleet.Fleet        // nil where it is off
	Tail     *subscribers.Subscribers
	janitor  *janitor.Janitor
}

// newEvents opens the event store in the data folder, or in memory where there is none.
func newEvents(m *Plane, spent *costs) (_ *Events, err error) {
	d, g := m.d, m.Group
	e := &Events{d: d, group: g}
	e.Router = shardrouter.New(shardrouter.Config{Self: d.ID, Resources: g.Resources, Members: g.members, Call: d.RPC.Call,
		Forwarded: spent.forwarded, Log: d.Log, Now: d.Clock.Now, Leads: g.Raft.LeaseHeld,
		Ready: func() bool { return g.Raft.LeaderAddr() != "" && g.Raft.LastContact() <= raftgroup.Silent }})
	fsys, dir := d.FS, filepath.Join(d.Cfg.DataDir, "monitor", "events")
	if d.Cfg.DataDir == "" {
		fsys, dir = vfs.NewMem(), "/events"
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	cfg := &d.Cfg.Monitor
	e.Ingest, err = ingest.New(ingest.Config{
		Open: func(l eventstore.Loaded) (eventstore.Store, error) { return e.openStore(fsys, dir, l) },
		Log:  d.Log, Now: d.Clock.Now, Policy: handing{m, e}, Sink: handing{m, e}, Meter: spent, Shared: true,
		PendingBytes: int64(cfg.PendingMax), HistoryRuns: cfg.HistoryRuns, HistoryAge: cfg.HistoryAge,
	})
	if err != nil {
		return nil, err
	}
	e.Router.Use(e.Ingest)
	if c := &cfg.Catalog; c.Enabled {
		e.Fleet = fleet.New(fleet.Config{Catalog: catalogOf{d.Catalog}, Events: e.Ingest, Namespace: c.Namespace,
			Failures: c.Failures, Handlers: c.Handlers, Pipelines: c.Pipelines, Proxy: g.Resources.Proxy, Log: d.Log,
			Now: d.Clock.Now})
	}
	e.janitor = janitor.New(janitor.Config{Resources: g.Resources, Events: e.Ingest,
		DeregistrationHandler: cfg.DeregistrationHandler, Log: d.Log, Now: d.Clock.Now})
	e.Tail = subscribers.New(subscribers.Config{}, e.Ingest.Follow)
	d.HandleStream(wire.Servers, subscribers.MethodFollow, e.Tail.Serve)
	for method, handle := range e.Router.Handlers() {
		d.Handle(wire.Servers, method, handle)
	}
	return e, nil
}

// openStore opens the event store that the configuration names.
func (e *Events) openStore(fsys vfs.FS, dir string, l eventstore.Loaded) (eventstore.Store, error) {
	cfg := &e.d.Cfg.Monitor
	if cfg.Store != "postgresql" {
		return logevents.Open(logevents.Config{FS: fsys, Dir: dir, Log: e.d.Log}, l)
	}
	s, err := pgevents.Open(context.Background(), pgevents.Config{DSN: cfg.DSN, Self: e.d.ID, Owner: e.Router.Owner,
		Conns: cfg.StorePool, Retention: cfg.HistoryRetention, Settled: func() bool { return len(e.Router.Lacks()) == 0 },
		Log: e.d.Log, Now: e.d.Clock.Now}, l)
	if err != nil {
		return nil, err
	}
	e.Postgres = s
	return s, nil
}

// Follow shows what all servers store.
func (e *Events) Follow(filter subscribers.Filter) (*subscribers.Follower, error) {
	return e.Tail.Over(filter, subscribers.Servers{List: e.group.others,
		Open: func(ctx context.Context, addr, method string, req []byte) (func() ([]byte, error), func() error, error) {
			stream, err := e.d.RPC.Stream(ctx, addr, method, req)
			if err != nil {
				return nil, nil, err
			}
			return stream.Recv, stream.Close, nil
		}})
}

// history answers from the long history of checks, where the store has one.
func (e *Events) history() func(ctx context.Context, k eventstore.Key, before time.Time,
	most int) ([]eventstore.Run, error) {
	if e.Postgres == nil {
		return nil
	}
	return e.Postgres.History
}

// postgresHealth tells of the objects that describe PostgreSQL; which database it is, this server's configuration says.
func (e *Events) postgresHealth() (list []sensuapi.Postgres) {
	if e.Postgres == nil {
		return nil
	}
	healthy := e.Postgres.Healthy() == nil
	e.group.Resources.View().List("provider", "", "", "", func(i *objects.Item) bool {
		list = append(list, sensuapi.Postgres{Name: i.Name, Active: true, Healthy: healthy})
		return true
	})
	if len(list) == 0 {
		list = []sensuapi.Postgres{{Name: "postgresql", Active: true, Healthy: healthy}}
	}
	return list
}
