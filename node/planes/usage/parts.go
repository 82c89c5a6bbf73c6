package usageplane

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/uplink"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/parts"
	"corbel.dev/corbel/usage/router"
)

// handle serves the RPCs of other servers.
func (p *Plane) handle() {
	type rpc = func(context.Context, []byte) ([]byte, error)
	all := p.Parts.Methods()
	all[MethodPropose] = p.writer.Serve
	all[methodRoles] = p.peers.serve
	all[methodRefused] = newRefusals(p).serve
	for method, h := range map[string]func(context.Context, *counter.Counter, []byte) ([]byte, error){
		router.MethodTake: p.Router.Serve, aggregator.MethodExtract: p.Aggregator.ServeExtract,
		aggregator.MethodSeries: p.Aggregator.ServeSeries, aggregator.MethodFind: p.Aggregator.ServeFind,
		aggregator.MethodLate: p.Aggregator.ServeLate, aggregator.MethodVersion: p.Aggregator.ServeVersion,
		methodExplain: p.serveExplain} {
		all[method] = rpc(func(ctx context.Context, req []byte) ([]byte, error) {
			r := pack.Read(req)
			part, rest := r.String(), r.Bytes()
			if r.Err() != nil {
				return nil, errkind.E(errkind.Invalid, method, r.Err())
			}
			c, err := p.Parts.Served(part)
			if err != nil {
				return nil, err
			}
			return h(ctx, c, rest)
		})
	}
	for method, h := range all {
		p.d.Handle(wire.Servers, method, h)
	}
}

// callPart asks the server that leads a part.
func (p *Plane) callPart(ctx context.Context, part, method string, req []byte) ([]byte, error) {
	return p.call(ctx, p.Parts.Lead(part), method, pack.Bytes(pack.String(nil, part), req))
}

// openParts makes the parts, which are in the data folder, or in memory where there is none.
func (p *Plane) openParts(counts aggregate.Config) (err error) {
	d, k := p.d, p.keys
	p.dir, p.fs = filepath.Join(d.Cfg.DataDir, "usage"), d.FS
	if d.Cfg.DataDir == "" {
		p.fs, p.dir = vfs.NewMem(), "/usage"
	}
	signal := counter.NewSignal(d.Clock.Now())
	copies := p.openPlaces()
	each := max(1, k.Log.Copies) // memory is shared by the parts that a server has
	cfg := counter.Config{Copies: copies, CopyEvery: k.Copies.Every, Key: p.key, Follows: true, Signal: signal,
		Dedup: dedup.Config{Window: usage.MaxLate, Capacity: k.State.IDs}, Aggregate: counts,
		QueueBytes: k.Queue / each, Snapshot: k.State.Snapshot, Keep: k.Log.Keep, Clock: d.Clock, Log: d.Log,
		Metrics: d.Metrics}
	many := k.Log.Copies
	if len(k.Log.Kafka.Brokers) > 0 || d.Cfg.DataDir == "" {
		many = 1 // brokers have the copies
	}
	p.Parts, err = parts.New(parts.Config{Self: d.ID, Definitions: p.Definitions, Call: p.call, Voters: p.counters,
		Leads: p.raft.IsLeader, Copies: many, Shared: len(k.Log.Kafka.Brokers) > 0,
		Alone: k.Log.Alone, Failover: k.Log.Failover,
		Warmup: k.Log.Warmup, Link: func() uplink.State { return uplink.Read(d.Cfg.Advertise.Addr) },
		Clock: d.Clock, Log: d.Log,
		Metrics: d.Metrics, Open: func(part string) (parts.Place, error) { return p.openPart(part, cfg) }}, signal)
	return err
}

// unfinished is the file that says that a place is being made anew.
const unfinished = "UNFINISHED"

// openPart makes the place of a part.
func (p *Plane) openPart(part string, cfg counter.Config) (parts.Place, error) {
	dir := p.dir
	if part != p.d.ID {
		dir = filepath.Join(p.dir, "parts", part)
	}
	if err := p.folders(dir, "", "log", "state"); err != nil {
		return parts.Place{}, err
	}
	if _, err := p.fs.Stat(filepath.Join(dir, unfinished)); err == nil {
		if err := p.empty(dir); err != nil {
			return parts.Place{}, err
		}
	}
	blobs, err := counterstate.NewFolder(p.fs, filepath.Join(dir, "state"))
	if err != nil {
		return parts.Place{}, err
	}
	folder := embedded.Config{FS: p.fs, Dir: filepath.Join(dir, "log"), Partitions: 1, SegmentBytes: 64 << 20,
		MaxBytes: int64(p.keys.Log.MaxBytes), Clock: p.d.Clock, Log: p.d.Log}
	if p.d.Cfg.DataDir == "" {
		folder.MaxBytes, folder.SegmentBytes = 512<<20, 4<<20 // it is memory
	}
	store := counterstate.New(counterstate.Config{Blobs: blobs, Log: p.d.Log})
	cfg.Name, cfg.Store = part, store
	cfg.Open = func() (eventlog.Log, error) { return p.openLog(part, folder) }
	return parts.Place{
		Counter: counter.New(cfg),
		Begin: func(ctx context.Context, first uint64) (eventlog.Log, error) {
			return p.beginPart(ctx, dir, folder, first)
		},
		Save: func(ctx context.Context, state []byte, next uint64) error {
			if err := store.Save(ctx, counter.SnapshotName, counterstate.Snapshot{At: p.d.Clock.Now(), State: state,
				Positions: []eventlog.Position{{Offset: next}}}); err != nil {
				return err
			}
			return errors.Join(p.fs.Remove(filepath.Join(dir, unfinished)), p.fs.SyncDir(dir))
		},
	}, nil
}

// beginPart empties a place, and opens a log there that begins at an offset.
func (p *Plane) beginPart(ctx context.Context, dir string, folder embedded.Config, first uint64) (eventlog.Log, error) {
	if err := vfs.WriteFileAtomic(p.fs, filepath.Join(dir, unfinished), nil, 0o600); err != nil {
		return nil, err
	}
	if err := p.empty(dir); err != nil {
		return nil, err
	}
	if err := vfs.WriteFileAtomic(p.fs, filepath.Join(dir, unfinished), nil, 0o600); err != nil {
		return nil, err
	}
	log, err := embedded.Open(folder)
	if err != nil || first == 0 {
		return log, err
	}
	if err := log.BeginAt(ctx, []uint64{first}); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// empty removes the files of a place, and last the one that says that it is unfinished.
func (p *Plane) empty(dir string) error {
	for _, folder := range []string{"log", "state"} {
		entries, err := p.fs.ReadDir(filepath.Join(dir, folder))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := p.fs.Remove(filepath.Join(dir, folder, e.Name())); err != nil {
				return err
			}
		}
		if err := p.fs.SyncDir(filepath.Join(dir, folder)); err != nil {
			return err
		}
	}
	if err := p.fs.Remove(filepath.Join(dir, unfinished)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return p.fs.SyncDir(dir)
}
