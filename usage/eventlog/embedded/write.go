package embedded

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/eventlog"
)

// keptBytes of memory stay for the next frame, whatever this one's size is.
const keptBytes = 1 << 20

// entryBytes is what a request takes beside its data.
const entryBytes = 64

// Append implements eventlog.Log.
func (l *Log) Append(ctx context.Context, entries []eventlog.Entry) ([]uint64, error) {
	if err := eventlog.CheckEntries(entries, l.Partitions()); err != nil {
		return nil, err
	}
	if have := l.stored.Load(); have >= l.cfg.MaxBytes {
		return nil, errkind.Errorf(errkind.Overloaded, "the log of usage events is full: it holds %d bytes, and who reads "+
			"it lags behind", have)
	}
	r := &request{entries: entries, offsets: make([]uint64, len(entries))}
	for _, e := range entries {
		r.bytes += int64(len(e.Data)) + entryBytes
	}
	if err := l.do(ctx, r); err != nil {
		return nil, err
	}
	return r.offsets, nil
}

// Commit implements eventlog.Log. It may be done when the log is full: it is what makes room.
func (l *Log) Commit(ctx context.Context, group string, positions []eventlog.Position) error {
	if err := eventlog.CheckPositions(group, positions, l.Partitions()); err != nil {
		return err
	}
	l.mu.Lock()
	_, known := l.durable.groups[group]
	many := !known && len(l.durable.groups) >= maxGroups
	l.mu.Unlock()
	if many {
		return errkind.Errorf(errkind.Invalid, "group %q: there are %d groups already", group, maxGroups)
	}
	r := &request{commit: &commit{group, positions}}
	for _, p := range positions {
		r.bytes += int64(len(p.Note)) + entryBytes
	}
	return l.do(ctx, r)
}

// do waits until a request is done: by this goroutine, when none is writing, or by another one.
func (l *Log) do(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return errkind.E(errkind.Unavailable, "usage log", err)
	}
	if err := l.enqueue(r); err != nil {
		return err
	}
	for {
		select {
		case <-r.done:
			return r.err
		case l.writing <- struct{}{}:
			select {
			case <-r.done: // by who wrote before
			default:
				l.write()
			}
			<-l.writing
		case <-ctx.Done():
			if l.withdraw(r) {
				return errkind.E(errkind.Unavailable, "usage log", ctx.Err())
			}
			select {
			case <-r.done:
				return r.err
			default:
				return errkind.E(errkind.Unknown, "usage log: being written", ctx.Err())
			}
		}
	}
}

func (l *Log) enqueue(r *request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errClosed
	case l.pendingBytes+r.bytes > l.cfg.PendingBytes && len(l.pending) > 0:
		return errkind.Errorf(errkind.Overloaded, "%d bytes wait to be written to the log of usage events",
			l.pendingBytes)
	}
	r.done = make(chan struct{})
	l.pending = append(l.pending, r)
	l.pendingBytes += r.bytes
	return nil
}

// withdraw takes a request back that nobody has begun to write.
func (l *Log) withdraw(r *request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.pending {
		if other == r {
			l.pending = append(l.pending[:i], l.pending[i+1:]...)
			l.pendingBytes -= r.bytes
			return true
		}
	}
	return false
}

// take takes what goes into the next frame: the oldest requests.
func (l *Log) take() (batch []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, n := int64(0), 0
	for _, r := range l.pending {
		if n > 0 && size+r.bytes > int64(l.cfg.FrameBytes) {
			break
		}
		size += r.bytes
		n++
	}
	batch = append(batch, l.pending[:n]...)
	l.pending = append(l.pending[:0], l.pending[n:]...)
	clear(l.pending[len(l.pending):cap(l.pending)])
	l.pendingBytes -= size
	return batch
}

// write makes one frame of what waits. Its caller holds writing.
func (l *Log) write() {
	batch := l.take()
	if len(batch) == 0 {
		return
	}
	valid := batch[:0:0]
	for _, r := range batch {
		if r.err = l.ahead(r); r.err == nil {
			valid = append(valid, r)
		}
	}
	if len(valid) > 0 {
		err := l.writeFrame(valid)
		for _, r := range valid {
			r.err = err
		}
	}
	for _, r := range batch {
		close(r.done)
	}
}

// ahead refuses a commit of what is not there: a position that points into the future would pass over records.
func (l *Log) ahead(r *request) error {
	if r.commit == nil {
		return nil
	}
	for _, p := range r.commit.positions {
		if next := l.durable.next[p.Partition]; p.Offset > next {
			return errkind.Errorf(errkind.Invalid, "partition %d: position %d is ahead of the log, which ends at %d",
				p.Partition, p.Offset, next)
		}
	}
	return nil
}

func (l *Log) writeFrame(batch []*request) error {
	now := max(l.cfg.Clock.Now().UnixNano(), l.durable.at)
	next := append([]uint64(nil), l.durable.next...)
	body := l.encode(batch, next)
	if l.frame = body; cap(body) > keptBytes && len(body) < cap(body)/4 {
		l.frame = nil // of a storm that is over
	}
	head := appendHead(nil, now, nil)
	first := !l.journal.Fits(len(head) + len(body))
	if first {
		head = appendHead(nil, now, &l.durable.state)
	}
	sequence, err := l.journal.Append(head, body)
	if err != nil {
		return err
	}
	l.measure()
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.durable
	if first {
		d.begin(sequence-1, d.state, now)
	}
	d.next, d.sequence, d.at = next, sequence, now
	d.wrote(len(head)+len(body), l.placeEvery())
	for _, r := range batch {
		if r.commit != nil {
			d.groups.set(r.commit.group, r.commit.positions)
		}
	}
	l.wake()
	return nil
}

// encode appends entries and commits, and moves next on.
func (l *Log) encode(batch []*request, next []uint64) []byte {
	entries, commits := 0, 0
	for _, r := range batch {
		if r.commit != nil {
			commits++
		}
		entries += len(r.entries)
	}
	b := pack.Uint(l.frame[:0], uint64(entries))
	for _, r := range batch {
		for i, e := range r.entries {
			r.offsets[i] = next[e.Partition]
			b = appendEntry(b, e, next[e.Partition])
			next[e.Partition]++
		}
	}
	b = pack.Uint(b, uint64(commits))
	for _, r := range batch {
		if r.commit != nil {
			b = appendCommit(b, *r.commit)
		}
	}
	return b
}
