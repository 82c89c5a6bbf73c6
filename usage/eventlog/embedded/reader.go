package embedded

import (
	"context"
	"maps"
	"sort"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/journal"
	"corbel.dev/corbel/usage/eventlog"
)

// reader goes through the journal's frames and picks its partitions' records. A partition that is assigned further
// back makes it begin there again, and pass over what the others have had.
type reader struct {
	log      *Log
	wanted   map[int]uint64 // the next offset, by partition
	sequence uint64         // of the frame that was read last
	cursor   *journal.Cursor
	lost     map[int]*eventlog.OutOfRange // partitions that cannot go on
	records  []eventlog.Record
}

// Reader implements eventlog.Log.
func (l *Log) Reader(from map[int]uint64) (eventlog.Reader, error) {
	l.mu.Lock()
	sequence := l.durable.sequence
	l.mu.Unlock()
	r := &reader{log: l, wanted: map[int]uint64{}, sequence: sequence, cursor: l.journal.Cursor(sequence),
		lost: map[int]*eventlog.OutOfRange{}}
	return r, r.Assign(from)
}

// Assign implements eventlog.Reader.
func (r *reader) Assign(from map[int]uint64) error {
	if err := eventlog.CheckPartitions(from, r.log.Partitions()); err != nil {
		return err
	}
	sequence := r.sequence
	r.log.mu.Lock()
	for p, offset := range from {
		sequence = min(sequence, r.log.durable.before(p, offset))
	}
	r.log.mu.Unlock()
	for p := range from {
		delete(r.lost, p)
	}
	maps.Copy(r.wanted, from)
	if sequence == r.sequence {
		return nil
	}
	err := r.cursor.Close()
	r.cursor, r.sequence = r.log.journal.Cursor(sequence), sequence
	return err
}

// before returns a sequence behind which all records of a partition from an offset on stand.
func (d *durable) before(p int, offset uint64) uint64 {
	if offset >= d.next[p] {
		return d.sequence
	}
	i := sort.Search(len(d.segments), func(i int) bool { return d.segments[i].first[p] > offset })
	if i == 0 {
		return 0
	}
	s := d.segments[i-1]
	if n := sort.Search(len(s.places), func(i int) bool { return s.places[i].next[p] > offset }); n > 0 {
		return s.places[n-1].sequence
	}
	return s.before
}

// Drop implements eventlog.Reader.
func (r *reader) Drop(partitions ...int) {
	for _, p := range partitions {
		delete(r.wanted, p)
		delete(r.lost, p)
	}
}

// Next implements eventlog.Reader.
func (r *reader) Next(ctx context.Context) ([]eventlog.Record, error) {
	for {
		durable, changed, err := r.look()
		if err != nil {
			return nil, err
		}
		if r.sequence >= durable {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, errkind.E(errkind.Unavailable, "usage log", ctx.Err())
			}
		}
		sequence, content, ok, err := r.cursor.Next()
		if err == nil && !ok {
			err = errkind.Errorf(errkind.Corrupt, "usage log: frame %d is gone", r.sequence+1)
		}
		if err == nil {
			r.sequence = sequence
			err = r.pick(content)
		}
		switch {
		case err != nil:
			return nil, err
		case len(r.records) > 0:
			return r.records, nil
		}
		if err := ctx.Err(); err != nil { // a long way through others' records
			return nil, errkind.E(errkind.Unavailable, "usage log", err)
		}
	}
}

// look says whether a partition wants what is not there. It returns the sequence up to which the reader may go, and
// what is closed when that changes.
func (r *reader) look() (durable uint64, changed <-chan struct{}, err error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, nil, errClosed
	}
	for p, offset := range r.wanted {
		if b := l.durable.bound(p); offset < b.First || offset > b.Next {
			r.lose(p, offset, b)
		}
	}
	for _, lost := range r.lost {
		return 0, nil, errkind.E(errkind.NotFound, "usage log", lost)
	}
	return l.durable.sequence, l.changed, nil
}

func (r *reader) lose(p int, offset uint64, b eventlog.Bound) {
	if r.lost[p] == nil {
		r.lost[p] = &eventlog.OutOfRange{Partition: p, Offset: offset, Bound: b}
	}
}

// pick keeps a frame's records that are wanted.
func (r *reader) pick(content []byte) error {
	r.records = r.records[:0]
	f, err := readFrame(content)
	if err != nil {
		return err
	}
	at := time.Unix(0, f.at).UTC()
	return f.entries(r.log.partitions, func(e eventlog.Entry, offset uint64) {
		want, mine := r.wanted[e.Partition]
		switch {
		case !mine || offset < want || r.lost[e.Partition] != nil:
		case offset > want: // it was trimmed under the reader
			r.lose(e.Partition, want, eventlog.Bound{First: offset, Next: offset + 1})
		default:
			r.wanted[e.Partition] = offset + 1
			r.records = append(r.records, eventlog.Record{Partition: e.Partition, Offset: offset, At: at, Data: e.Data})
		}
	})
}

// Close implements eventlog.Reader.
func (r *reader) Close() error { return r.cursor.Close() }
