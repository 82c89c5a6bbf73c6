package counterstate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// What does not fit into one piece, compressed, is kept as several blobs: the pieces, whose names begin with that of
// the snapshot, have a mark of whoever saves it and a number, and a head that names them, which is put last. So a
// snapshot is whole or not there, nothing but its state is whole in memory, each piece takes its turn of the budget,
// and one that fails is asked for again alone.
const (
	pieceMark    = "."
	maxPiece     = 64 << 20
	pieceTries   = 3
	pieceTimeout = 20 * time.Second
	headTimeout  = time.Minute // of former versions a blob has all of a state
)

// piece is what a head knows of one.
type piece struct {
	bytes int
	sum   uint32
}

// IsPiece says whether a blob is a piece of a snapshot. Places need not list those that go by themselves.
func IsPiece(name string) bool {
	_, rest, _ := strings.Cut(name, "@")
	return strings.Contains(rest, pieceMark)
}

func pieceName(blob, tag string, n int) string { return fmt.Sprintf("%s.%s.%06x", blob, tag, n) }

// numberOf is the number of the snapshot that a piece belongs to.
func numberOf(name, blob string) (uint64, bool) {
	text, _, ok := strings.Cut(strings.TrimPrefix(blob, name+"@"), pieceMark)
	n, err := strconv.ParseUint(text, 16, 64)
	return n, ok && err == nil
}

// lasting are the kinds of errors that another try does not mend.
var lasting = []errkind.Kind{errkind.Conflict, errkind.NotFound, errkind.Corrupt, errkind.Invalid, errkind.TooLarge,
	errkind.Denied}

// again does something at a place, and tries again what may pass.
func (s *Store) again(ctx context.Context, do func(context.Context) error) error {
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}
	for {
		err := do(ctx)
		if err == nil || slices.Contains(lasting, errkind.Of(err)) || pause.Tries() == pieceTries-1 || ctx.Err() != nil {
			return err
		}
		t := s.cfg.Clock.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// pieceWriter puts what is written to it in pieces, but for the first one while it is the only one.
type pieceWriter struct {
	ctx       context.Context
	s         *Store
	blob, tag string
	buf       []byte
	put       []piece
}

func (s *Store) pieces(ctx context.Context, blob string) *pieceWriter {
	var mark [4]byte
	_, _ = rand.Read(mark[:]) // it does not fail
	return &pieceWriter{ctx: ctx, s: s, blob: blob, tag: hex.EncodeToString(mark[:])}
}

// Write implements io.Writer.
func (w *pieceWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		if len(w.buf) == w.s.cfg.PieceBytes {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
		part := min(len(b), w.s.cfg.PieceBytes-len(w.buf))
		w.buf = append(w.buf, b[:part]...)
		b, n = b[part:], n+part
	}
	return n, nil
}

// flush puts a piece. One that is there was put by a try whose answer was lost: the mark is nobody else's.
func (w *pieceWriter) flush() error {
	name := pieceName(w.blob, w.tag, len(w.put))
	err := w.s.again(w.ctx, func(ctx context.Context) error { return w.s.give(ctx, name, w.buf) })
	if err != nil && !errkind.Is(err, errkind.Conflict) {
		return err
	}
	w.put = append(w.put, piece{len(w.buf), checksum(w.buf)})
	w.buf = w.buf[:0]
	return nil
}

// drop removes the pieces of a snapshot that was not saved.
func (w *pieceWriter) drop() {
	ctx := context.WithoutCancel(w.ctx)
	for n := range len(w.put) + 1 {
		if len(w.put) > 0 && w.s.remove(ctx, pieceName(w.blob, w.tag, n)) != nil {
			return // the next one that is saved removes them
		}
	}
}

// give puts a blob when its bytes may go.
func (s *Store) give(ctx context.Context, name string, data []byte) error {
	if err := s.cfg.Lane.Send(ctx, len(data)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pieceTimeout)
	defer cancel()
	return s.cfg.Blobs.Put(ctx, name, data)
}

// fetch gets a head, or a small snapshot.
func (s *Store) fetch(ctx context.Context, name string) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, headTimeout)
	defer cancel()
	return s.cfg.Blobs.Get(within, name)
}

func (s *Store) list(ctx context.Context, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, headTimeout)
	defer cancel()
	return s.cfg.Blobs.List(ctx, name+"@")
}

func (s *Store) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, pieceTimeout)
	defer cancel()
	return s.cfg.Blobs.Delete(ctx, name)
}

// pieceReader reads the pieces of a snapshot, one after the other.
type pieceReader struct {
	ctx  context.Context
	s    *Store
	blob string
	head *head
	next int
	buf  []byte
	err  error
}

// Read implements io.Reader.
func (r *pieceReader) Read(b []byte) (int, error) {
	for len(r.buf) == 0 {
		if r.err == nil {
			r.fetch()
		}
		if r.err != nil {
			return 0, r.err
		}
	}
	n := copy(b, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *pieceReader) fetch() {
	if r.next == len(r.head.pieces) {
		r.err = io.EOF
		return
	}
	want := r.head.pieces[r.next]
	name := pieceName(r.blob, r.head.tag, r.next)
	r.err = r.s.again(r.ctx, func(ctx context.Context) error {
		if err := r.s.cfg.Lane.Load(ctx, want.bytes); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, pieceTimeout)
		defer cancel()
		data, err := r.s.cfg.Blobs.Get(ctx, name)
		if err != nil {
			return err
		}
		if len(data) != want.bytes || checksum(data) != want.sum {
			return errkind.Errorf(errkind.Corrupt, "piece %s: its checksum or its length is wrong", name)
		}
		r.buf, r.next = data, r.next+1
		return nil
	})
}

// unpack reads a state: it alone is whole in memory.
func (r *pieceReader) unpack() ([]byte, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(windowBytes))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	state := make([]byte, r.head.size)
	_, err = io.ReadFull(z, state)
	if err == nil {
		var more [1]byte
		if n, end := z.Read(more[:]); n > 0 || end != io.EOF { //nolint:errorlint // the decoder's own
			err = cmp.Or(end, error(errDamaged))
		}
	}
	if r.err != nil && r.err != io.EOF { //nolint:errorlint // its own
		return nil, r.err
	}
	if err != nil {
		return nil, errDamaged
	}
	return state, nil
}

// prune removes all snapshots but the newest ones, with their pieces, and pieces of older ones that were never whole.
// What cannot be removed is tried again after the next one.
func (s *Store) prune(ctx context.Context, name string, list []uint64) {
	old := list[:max(0, len(list)-s.cfg.Keep)]
	fail := func(blob string, err error) {
		s.cfg.Log.Warn("an old snapshot was not removed", "name", blob, "error", err)
	}
	for _, n := range old {
		blob := blobName(name, n)
		var gone []string
		if data, err := s.fetch(ctx, blob); err == nil {
			if h, err := decode(name, data, s.cfg.MaxBytes); err == nil {
				for i := range h.pieces {
					gone = append(gone, pieceName(blob, h.tag, i))
				}
			}
		}
		for _, one := range append(gone, blob) { // a head without its pieces is found again, pieces may not be
			if err := s.remove(ctx, one); err != nil {
				fail(one, err)
				break
			}
		}
	}
	names, err := s.list(ctx, name)
	if err != nil {
		fail(name, err)
		return
	}
	first := list[len(old)]
	for _, blob := range slices.DeleteFunc(names, func(blob string) bool { return !IsPiece(blob) }) {
		if n, ok := numberOf(name, blob); ok && n < first {
			if err := s.remove(ctx, blob); err != nil {
				fail(blob, err)
				return
			}
		}
	}
}
