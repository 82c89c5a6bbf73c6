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
//   - What is large goes and comes in pieces, each when the host's budget (package pace) has room for it, so that a
//     state is whole in memory once. A piece that fails is tried again, and a snapshot that is cut is none.
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

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/pace"
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
	// More is the rest of a state that is saved and came in pieces; what is loaded has none.
	More [][]byte
}

func (s *Snapshot) size() int {
	n := len(s.State)
	for _, b := range s.More {
		n += len(b)
	}
	return n
}

// Config of a Store.
type Config struct {
	Blobs Blobs
	// Keep is how many snapshots of a name stay; zero means 2.
	Keep int
	// MaxBytes bounds a state; zero means 1 GiB.
	MaxBytes int
	// PieceBytes is how much of a state, compressed, goes at once; zero means 1 MiB.
	PieceBytes int
	// Lane is the budget of what goes and comes; nil has no bound.
	Lane  *pace.Lane
	Clock clock.Clock
	Log   *slog.Logger
}

// Store keeps snapshots.
type Store struct{ cfg Config }

// New makes a Store.
func New(cfg Config) *Store {
	cfg.Keep = cmp.Or(cfg.Keep, 2)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 1<<30)
	cfg.PieceBytes = min(cmp.Or(cfg.PieceBytes, 1<<20), maxPiece)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
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
	names, err := s.list(ctx, name)
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
	if size := snap.size(); size > s.cfg.MaxBytes {
		return errkind.Errorf(errkind.TooLarge, "snapshot %s: has %d bytes, at most %d fit", name, size, s.cfg.MaxBytes)
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
		err = s.put(ctx, name, number, snap)
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

// put stores a snapshot under a number: its pieces first, where it has several, and then its head.
func (s *Store) put(ctx context.Context, name string, number uint64, snap Snapshot) error {
	blob := blobName(name, number)
	w := s.pieces(ctx, blob)
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	_, err = z.Write(snap.State)
	for i := 0; i < len(snap.More) && err == nil; i++ {
		_, err = z.Write(snap.More[i])
	}
	if ended := z.Close(); err == nil {
		err = ended
	}
	if err == nil && len(w.put) > 0 && len(w.buf) > 0 {
		err = w.flush()
	}
	if err == nil {
		err = s.give(ctx, blob, encode(name, snap, w))
	}
	if err != nil {
		w.drop()
	}
	return err
}

// Load returns the newest sound snapshot of a name. Without any the error's kind is NotFound; where all are damaged
// it is Corrupt. One that its owner removes meanwhile, since there are newer ones, is left for the newest.
func (s *Store) Load(ctx context.Context, name string) (Snapshot, error) {
	if err := checkName(name); err != nil {
		return Snapshot{}, err
	}
	list, err := s.numbers(ctx, name)
	for tries := 0; err == nil; tries++ {
		snap, problem := s.newest(ctx, name, list)
		if problem == nil || tries == mostConflicts ||
			!errkind.Is(problem, errkind.Corrupt) && !errkind.Is(problem, errkind.NotFound) {
			return snap, problem
		}
		var now []uint64
		if now, err = s.numbers(ctx, name); err == nil && slices.Equal(now, list) {
			return snap, problem
		}
		list = now
	}
	return Snapshot{}, err
}

// newest is the newest sound one of a list.
func (s *Store) newest(ctx context.Context, name string, list []uint64) (Snapshot, error) {
	err := errkind.Errorf(errkind.NotFound, "no snapshot of %s", name)
	for _, n := range slices.Backward(list) {
		blob := blobName(name, n)
		data, problem := s.fetch(ctx, blob)
		if errkind.Is(problem, errkind.NotFound) {
			continue // removed meanwhile, since there are newer ones
		}
		if problem == nil {
			problem = s.cfg.Lane.Load(ctx, len(data))
		}
		if problem != nil {
			return Snapshot{}, problem
		}
		h, problem := decode(name, data, s.cfg.MaxBytes)
		if problem == nil && h.pieces != nil {
			h.State, problem = (&pieceReader{ctx: ctx, s: s, blob: blob, head: h}).unpack()
		}
		if problem == nil {
			return h.Snapshot, nil
		}
		if !errkind.Is(problem, errkind.Corrupt) && !errkind.Is(problem, errkind.NotFound) {
			return Snapshot{}, problem
		}
		s.cfg.Log.Warn("a snapshot is damaged; the one before it is taken", "name", blob, "error", problem)
		err = errkind.E(errkind.Corrupt, "snapshot "+blob, problem)
	}
	return Snapshot{}, err
}

// A snapshot of one piece is a blob: "CUS1", the CRC32C of what follows, and in the form of kit/pack: name, time,
// positions, the length of the state, and the state compressed by zstd. The head of one with several pieces is "CUS2"
// and the same up to the length of the state; then come the mark of whoever saved it, the number of pieces, and of each
// its length and its CRC32C.
const (
	magic       = "CUS1"
	magicPieces = "CUS2"
)

const headBytes = len(magic) + 4

// windowBytes is more than the window of what is compressed here, which a decoder has to have at least.
const windowBytes = 16 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// head is a snapshot without its state where that is in pieces.
type head struct {
	Snapshot
	size   uint64
	tag    string
	pieces []piece // nil: the state is here
}

// encode writes a snapshot whose state has been compressed: all of it, or its head.
func encode(name string, snap Snapshot, w *pieceWriter) []byte {
	b := append([]byte(magic), 0, 0, 0, 0)
	if len(w.put) > 0 {
		copy(b, magicPieces)
	}
	b = pack.Int(pack.String(b, name), snap.At.UnixNano())
	b = pack.Uint(b, uint64(len(snap.Positions)))
	for _, p := range snap.Positions {
		b = pack.Bytes(pack.Uint(pack.Uint(b, uint64(p.Partition)), p.Offset), p.Note)
	}
	b = pack.Uint(b, uint64(snap.size()))
	if len(w.put) == 0 {
		b = pack.Bytes(b, w.buf)
	} else {
		b = pack.Uint(pack.String(b, w.tag), uint64(len(w.put)))
		for _, p := range w.put {
			b = pack.Uint(pack.Uint(b, uint64(p.bytes)), uint64(p.sum))
		}
	}
	binary.LittleEndian.PutUint32(b[len(magic):], checksum(b[headBytes:]))
	return b
}

var errDamaged = errkind.New(errkind.Corrupt, "its checksum or its form is wrong")

func decode(name string, data []byte, most int) (*head, error) {
	if len(data) < headBytes || checksum(data[headBytes:]) != binary.LittleEndian.Uint32(data[len(magic):]) {
		return nil, errDamaged
	}
	kind := string(data[:len(magic)])
	if kind != magic && kind != magicPieces {
		return nil, errDamaged
	}
	r := pack.Read(data[headBytes:])
	if r.String() != name {
		return nil, errkind.New(errkind.Corrupt, "it is a snapshot of another name")
	}
	h := &head{Snapshot: Snapshot{At: time.Unix(0, r.Int()).UTC()}}
	for range r.Count() {
		p := eventlog.Position{}
		n := r.Uint()
		p.Offset, p.Note = r.Uint(), slices.Clone(r.Bytes())
		if r.Err() != nil || n >= eventlog.MaxPartitions {
			return nil, errDamaged
		}
		p.Partition = int(n)
		h.Positions = append(h.Positions, p)
	}
	if h.size = r.Uint(); r.Err() != nil || h.size > uint64(most) {
		return nil, errDamaged
	}
	if kind == magicPieces {
		return h, h.readPieces(r)
	}
	packed := r.Bytes()
	if r.Err() != nil {
		return nil, errDamaged
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max(h.size, windowBytes)))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if h.State, err = z.DecodeAll(packed, nil); err != nil || uint64(len(h.State)) != h.size {
		return nil, errDamaged
	}
	if h.size == 0 {
		h.State = nil
	}
	return h, nil
}

// readPieces reads the end of a head.
func (h *head) readPieces(r *pack.Reader) error {
	h.tag = r.String()
	for range r.Count() {
		bytes, sum := r.Uint(), r.Uint()
		if bytes > maxPiece || sum > 1<<32-1 {
			return errDamaged
		}
		h.pieces = append(h.pieces, piece{int(bytes), uint32(sum)})
	}
	if r.Err() != nil || len(h.pieces) == 0 || strings.Trim(h.tag, "0123456789abcdef") != "" || len(h.tag) > 16 {
		return errDamaged
	}
	return nil
}
