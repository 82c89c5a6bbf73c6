// Package counterstate keeps snapshots of what counters have counted, each with the positions in the log that it is as
// of: a counter that starts loads the newest one and reads the log from there.
//
// What always holds:
//   - A snapshot is whole or not there, and Save returns when it is durable.
//   - Load returns the newest one that verifies. A damaged one is passed over with a warning, and the one before it is
//     returned: its positions are older, so the log has to hold on. Who wants that commits to the log the positions of
//     the snapshot before the newest one.
//   - A store that does not answer is an error, never an older snapshot.
//   - Two owners of one name, while it moves, overwrite nothing of each other's: the later one is the newest.
//
// Blobs is the seam to where the bytes are; Folder is a folder of this server. A Store is for any goroutine, and starts
// none.
package counterstate

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/eventlog"
)

// Blobs keeps bytes by name.
type Blobs interface {
	// Put stores a blob, whole or not at all, and returns when it is durable. A name that is taken is an error of kind
	// Conflict, and nothing changes.
	Put(ctx context.Context, name string, data []byte) error
	// Get returns a blob; one that is not there is an error of kind NotFound.
	Get(ctx context.Context, name string) ([]byte, error)
	// List returns the names that begin with a prefix, sorted.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete removes a blob; one that is not there is no error.
	Delete(ctx context.Context, name string) error
}

// Snapshot is a state.
type Snapshot struct {
	At        time.Time
	Positions []eventlog.Position
	State     []byte
}

// Config of a Store.
type Config struct {
	Blobs Blobs
	// Keep is how many snapshots of a name stay; zero means 2.
	Keep int
	// MaxBytes bounds a state; zero means 1 GiB.
	MaxBytes int
	Log      *slog.Logger
}

// Store keeps snapshots.
type Store struct{ cfg Config }

// New makes a Store.
func New(cfg Config) *Store {
	cfg.Keep = cmp.Or(cfg.Keep, 2)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 1<<30)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{cfg: cfg}
}

// MaxNameBytes bounds a name.
const MaxNameBytes = 100

// checkName: names are parts of file names and of keys in buckets.
func checkName(name string) error {
	if name == "" || len(name) > MaxNameBytes || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return errkind.Errorf(errkind.Invalid, "name %q: 1 to %d of a-z, 0-9 and -", name, MaxNameBytes)
	}
	return nil
}

func blobName(name string, number uint64) string { return fmt.Sprintf("%s@%016x", name, number) }

// numbers are those of a name's snapshots, oldest first. Other names are not ours.
func (s *Store) numbers(ctx context.Context, name string) (list []uint64, err error) {
	names, err := s.cfg.Blobs.List(ctx, name+"@")
	if err != nil {
		return nil, err
	}
	for _, blob := range names {
		n, err := strconv.ParseUint(strings.TrimPrefix(blob, name+"@"), 16, 64)
		if err == nil && blobName(name, n) == blob {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// mostConflicts bounds how often a number is found taken: each time, another owner was faster.
const mostConflicts = 10

// Save stores a snapshot as the newest one of a name, and removes those that are not kept.
func (s *Store) Save(ctx context.Context, name string, snap Snapshot) error {
	if err := checkName(name); err != nil {
		return err
	}
	if len(snap.State) > s.cfg.MaxBytes {
		return errkind.Errorf(errkind.TooLarge, "snapshot %s: has %d bytes, at most %d fit", name, len(snap.State),
			s.cfg.MaxBytes)
	}
	data, err := encode(name, snap)
	if err != nil {
		return err
	}
	for range mostConflicts {
		list, err := s.numbers(ctx, name)
		if err != nil {
			return err
		}
		number := uint64(1)
		if len(list) > 0 {
			number = list[len(list)-1] + 1
		}
		err = s.cfg.Blobs.Put(ctx, blobName(name, number), data)
		if errkind.Is(err, errkind.Conflict) {
			continue
		}
		if err == nil {
			s.prune(ctx, name, append(list, number))
		}
		return err
	}
	return errkind.Errorf(errkind.Conflict, "snapshot %s: other owners save it all the time", name)
}

// prune removes all but the newest ones. What cannot be removed is tried again after the next one.
func (s *Store) prune(ctx context.Context, name string, list []uint64) {
	for _, n := range list[:max(0, len(list)-s.cfg.Keep)] {
		if err := s.cfg.Blobs.Delete(ctx, blobName(name, n)); err != nil {
			s.cfg.Log.Warn("an old snapshot was not removed", "name", blobName(name, n), "error", err)
		}
	}
}

// Load returns the newest sound snapshot of a name. Without any the error's kind is NotFound; where all are damaged
// it is Corrupt.
func (s *Store) Load(ctx context.Context, name string) (Snapshot, error) {
	if err := checkName(name); err != nil {
		return Snapshot{}, err
	}
	list, err := s.numbers(ctx, name)
	if err != nil {
		return Snapshot{}, err
	}
	err = errkind.Errorf(errkind.NotFound, "no snapshot of %s", name)
	for _, n := range slices.Backward(list) {
		data, problem := s.cfg.Blobs.Get(ctx, blobName(name, n))
		if errkind.Is(problem, errkind.NotFound) {
			continue // removed meanwhile, since there are newer ones
		}
		if problem != nil {
			return Snapshot{}, problem
		}
		snap, problem := decode(name, data, s.cfg.MaxBytes)
		if problem == nil {
			return snap, nil
		}
		s.cfg.Log.Warn("a snapshot is damaged; the one before it is taken", "name", blobName(name, n), "error", problem)
		err = errkind.E(errkind.Corrupt, "snapshot "+blobName(name, n), problem)
	}
	return Snapshot{}, err
}

// A blob is "CUS1", the CRC32C of what follows, and in the form of kit/pack: name, time, positions, the length of the
// state, and the state compressed by zstd.
const magic = "CUS1"

const headBytes = len(magic) + 4

// windowBytes is more than the window of what is compressed here, which a decoder has to have at least.
const windowBytes = 16 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func encode(name string, snap Snapshot) ([]byte, error) {
	b := append([]byte(magic), 0, 0, 0, 0)
	b = pack.Int(pack.String(b, name), snap.At.UnixNano())
	b = pack.Uint(b, uint64(len(snap.Positions)))
	for _, p := range snap.Positions {
		b = pack.Bytes(pack.Uint(pack.Uint(b, uint64(p.Partition)), p.Offset), p.Note)
	}
	b = pack.Uint(b, uint64(len(snap.State)))
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	b = pack.Bytes(b, z.EncodeAll(snap.State, nil))
	if err := z.Close(); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(b[len(magic):], checksum(b[headBytes:]))
	return b, nil
}

var errDamaged = errkind.New(errkind.Corrupt, "its checksum or its form is wrong")

func decode(name string, data []byte, most int) (Snapshot, error) {
	if len(data) < headBytes || string(data[:len(magic)]) != magic ||
		checksum(data[headBytes:]) != binary.LittleEndian.Uint32(data[len(magic):]) {
		return Snapshot{}, errDamaged
	}
	r := pack.Read(data[headBytes:])
	if r.String() != name {
		return Snapshot{}, errkind.New(errkind.Corrupt, "it is a snapshot of another name")
	}
	snap := Snapshot{At: time.Unix(0, r.Int()).UTC()}
	for range r.Count() {
		p := eventlog.Position{}
		n := r.Uint()
		p.Offset, p.Note = r.Uint(), slices.Clone(r.Bytes())
		if r.Err() != nil || n >= eventlog.MaxPartitions {
			return Snapshot{}, errDamaged
		}
		p.Partition = int(n)
		snap.Positions = append(snap.Positions, p)
	}
	size, packed := r.Uint(), r.Bytes()
	if r.Err() != nil || size > uint64(most) {
		return Snapshot{}, errDamaged
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max(size, windowBytes)))
	if err != nil {
		return Snapshot{}, err
	}
	defer z.Close()
	if snap.State, err = z.DecodeAll(packed, nil); err != nil || uint64(len(snap.State)) != size {
		return Snapshot{}, errDamaged
	}
	if size == 0 {
		snap.State = nil
	}
	return snap, nil
}
