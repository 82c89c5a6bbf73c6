package usageplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"corbel.dev/corbel/kit/uplink"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/eventlog/kafkalog"
	"corbel.dev/corbel/usage/pace"
	"corbel.dev/corbel/usage/parts"
)

// storage is where the parts of this server are: their logs, their states, and the places that have copies of those.
type storage struct {
	d      *plane.Doors
	keys   *Keys
	fs     vfs.FS   // of logs and states
	dir    string   // there
	places []*place // that have copies of snapshots
	budget *pace.Budget
}

// newStorage is in the data folder, or in memory where there is none.
func newStorage(d *plane.Doors, k *Keys) *storage {
	budget := pace.New(pace.Config{Rate: k.Log.Warmup, Clock: d.Clock, Metrics: d.Metrics,
		Link: func() uplink.State { return uplink.Read(d.Cfg.Advertise.Addr) }})
	if d.Cfg.DataDir == "" {
		return &storage{d: d, keys: k, fs: vfs.NewMem(), dir: "/usage", budget: budget}
	}
	return &storage{d: d, keys: k, fs: d.FS, dir: filepath.Join(d.Cfg.DataDir, "usage"), budget: budget}
}

// close ends the connections to the places of copies.
func (s *storage) close() {
	for _, b := range s.places {
		b.close()
	}
}

// store keeps snapshots at a place, by the budget of this host.
func (s *storage) store(blobs counterstate.Blobs, lane string) *counterstate.Store {
	return counterstate.New(counterstate.Config{Blobs: blobs, Lane: s.budget.Lane(lane), Clock: s.d.Clock, Log: s.d.Log})
}

// unfinished is the file that says that a place is being made anew.
const unfinished = "UNFINISHED"

// openPart makes the place of a part.
func (s *storage) openPart(part string, cfg counter.Config) (parts.Place, error) {
	dir := s.dir
	if part != s.d.ID {
		dir = filepath.Join(s.dir, "parts", part)
	}
	if err := s.folders(dir, "", "log", "state"); err != nil {
		return parts.Place{}, err
	}
	if _, err := s.fs.Stat(filepath.Join(dir, unfinished)); err == nil {
		if err := s.empty(dir); err != nil {
			return parts.Place{}, err
		}
	}
	blobs, err := counterstate.NewFolder(s.fs, filepath.Join(dir, "state"))
	if err != nil {
		return parts.Place{}, err
	}
	folder := embedded.Config{FS: s.fs, Dir: filepath.Join(dir, "log"), Partitions: 1, SegmentBytes: 64 << 20,
		MaxBytes: int64(s.keys.Log.MaxBytes), Clock: s.d.Clock, Log: s.d.Log}
	if s.d.Cfg.DataDir == "" {
		folder.MaxBytes, folder.SegmentBytes = 512<<20, 4<<20 // it is memory
	}
	store := s.store(blobs, pace.Folder)
	cfg.Name, cfg.Store = part, store
	cfg.Open = func() (eventlog.Log, error) { return s.openLog(part, folder) }
	return parts.Place{
		Counter: counter.New(cfg),
		Begin: func(ctx context.Context, first uint64) (eventlog.Log, error) {
			return s.beginPart(ctx, dir, folder, first)
		},
		Save: func(ctx context.Context, state [][]byte, next uint64) error {
			if err := store.Save(ctx, counter.SnapshotName, counterstate.Snapshot{At: s.d.Clock.Now(), More: state,
				Positions: []eventlog.Position{{Offset: next}}}); err != nil {
				return err
			}
			return errors.Join(s.fs.Remove(filepath.Join(dir, unfinished)), s.fs.SyncDir(dir))
		},
	}, nil
}

// beginPart empties a place, and opens a log there that begins at an offset.
func (s *storage) beginPart(ctx context.Context, dir string, folder embedded.Config, first uint64,
) (eventlog.Log, error) {
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(dir, unfinished), nil, 0o600); err != nil {
		return nil, err
	}
	if err := s.empty(dir); err != nil {
		return nil, err
	}
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(dir, unfinished), nil, 0o600); err != nil {
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
func (s *storage) empty(dir string) error {
	for _, folder := range []string{"log", "state"} {
		entries, err := s.fs.ReadDir(filepath.Join(dir, folder))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := s.fs.Remove(filepath.Join(dir, folder, e.Name())); err != nil {
				return err
			}
		}
		if err := s.fs.SyncDir(filepath.Join(dir, folder)); err != nil {
			return err
		}
	}
	if err := s.fs.Remove(filepath.Join(dir, unfinished)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.fs.SyncDir(dir)
}

// kafkaPatience bounds the opening of the log in a cluster; it is tried again.
const kafkaPatience = 30 * time.Second

// openLog opens the log of a part: in the brokers that the configuration names, or in a folder.
func (s *storage) openLog(part string, folder embedded.Config) (eventlog.Log, error) {
	k := &s.keys.Log.Kafka
	if len(k.Brokers) == 0 {
		return embedded.Open(folder)
	}
	secure, err := k.secure()
	if err != nil {
		return nil, fmt.Errorf("usage.log.kafka.ca_file: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), kafkaPatience)
	defer cancel()
	return kafkalog.Open(ctx, kafkalog.Config{Brokers: k.Brokers, Topic: cmp.Or(k.Topic, "corbel-usage") + "." + part,
		Partitions: 1, Replicas: int16(k.Replicas), TLS: secure, SASL: k.SASL, User: k.User, Password: k.Password})
}

// folders makes the folders of the plane.
func (s *storage) folders(dir string, names ...string) error {
	var wrong []error
	for _, name := range names {
		wrong = append(wrong, s.fs.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	return errors.Join(wrong...)
}
