package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/journal"
)

// Bounds of an outbox.
const (
	queueLength = 1024
	batchEvents = 64      // that are one frame on disk
	batchBytes  = 1 << 20 // that are read back at once
)

// Kinds of frames in a spool: events (each with its length before it), and the sequence up to which all were sent.
const (
	frameEvents = 'e'
	frameSent   = 's'
)

// parcel is an event in protobuf on its way; kept is told once it is safe, if somebody waits for that.
type parcel struct {
	body []byte
	kept chan error
}

// spooled is a frame of events on disk that was not sent yet.
type spooled struct {
	sequence uint64
	events   int
}

// outbox holds events until a backend has them: a queue in memory, and a journal on disk behind it. run owns all
// but the queue and the counters.
type outbox struct {
	agent   *Agent
	name    string
	durable bool // everything goes to disk before it goes out
	pace    *pace
	queue   chan parcel
	journal *journal.Journal // nil keeps events in memory alone
	frames  []spooled
	depth   atomic.Int64 // events on disk
}

// newOutbox opens an outbox. A spool that is damaged is put aside: an agent that does not start watches nothing.
func newOutbox(a *Agent, name string, durable bool, pace *pace) (*outbox, error) {
	o := &outbox{agent: a, name: name, durable: durable, pace: pace, queue: make(chan parcel, queueLength)}
	if a.cfg.CacheDir == "" {
		return o, nil
	}
	dir := filepath.Join(a.cfg.CacheDir, "spool", name)
	err := o.open(dir)
	if errkind.Is(err, errkind.Corrupt) {
		aside := dir + ".damaged-" + a.cfg.Now().UTC().Format("20060102T150405")
		a.cfg.Log.Error("the spool is damaged; setting it aside, its events were not sent", "spool", dir, "aside", aside,
			"error", err)
		if err := a.cfg.FS.Rename(dir, aside); err != nil {
			return nil, fmt.Errorf("cache-dir: %w", err)
		}
		err = o.open(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cache-dir: %w", err)
	}
	if n := o.depth.Load(); n > 0 {
		a.cfg.Log.Info("events of an earlier run are waiting to be sent", "spool", dir, "events", n)
	}
	return o, nil
}

func (o *outbox) open(dir string) (err error) {
	o.frames = nil
	o.depth.Store(0)
	cfg := journal.Config{FS: o.agent.cfg.FS, Dir: dir, Prefix: "events", Log: o.agent.cfg.Log,
		SegmentBytes: max(o.agent.cfg.SpoolBytes/8, 1<<20), Ahead: -1}
	o.journal, err = journal.Open(cfg, func(sequence uint64, content []byte) error {
		switch {
		case len(content) == 9 && content[0] == frameSent:
			o.forget(binary.BigEndian.Uint64(content[1:]))
		case len(content) > 0 && content[0] == frameEvents:
			n := 0
			if err := eachEvent(content[1:], func([]byte) { n++ }); err != nil {
				return err
			}
			o.remember(sequence, n)
		default:
			return errkind.Errorf(errkind.Corrupt, "a frame of an unknown kind")
		}
		return nil
	})
	return err
}

func eachEvent(content []byte, fn func([]byte)) error {
	for len(content) > 0 {
		n, size := binary.Uvarint(content)
		if size <= 0 || n > uint64(len(content)-size) {
			return errkind.Errorf(errkind.Corrupt, "a frame of events is damaged")
		}
		fn(content[size : size+int(n)])
		content = content[size+int(n):]
	}
	return nil
}

func (o *outbox) remember(sequence uint64, events int) {
	o.frames = append(o.frames, spooled{sequence, events})
	o.depth.Add(int64(events))
}

// forget drops what is known of frames up to sequence, and returns how many events they held.
func (o *outbox) forget(sequence uint64) (events int) {
	for len(o.frames) > 0 && o.frames[0].sequence <= sequence {
		events += o.frames[0].events
		o.frames = o.frames[1:]
	}
	o.depth.Add(-int64(events))
	return events
}

func (o *outbox) close() error {
	if o.journal == nil {
		return nil
	}
	return o.journal.Close()
}

// put takes an event. A durable outbox returns once it is on disk. It waits for room until ctx ends, and fails with
// kind Overloaded then.
func (o *outbox) put(ctx context.Context, body []byte) error {
	p := parcel{body: body}
	if o.durable && o.journal != nil {
		p.kept = make(chan error, 1)
	}
	select {
	case o.queue <- p:
	default:
		select {
		case o.queue <- p:
		case <-ctx.Done():
			o.agent.counts.dropped.Add(1)
			return errkind.Errorf(errkind.Overloaded, "the queue of %s is full (%d)", o.name, queueLength)
		}
	}
	if p.kept == nil {
		return nil
	}
	select {
	case err := <-p.kept:
		return err
	case <-ctx.Done():
		return errkind.E(errkind.Overloaded, "the disk takes too long", ctx.Err())
	}
}

// run moves events until ctx ends; what is in memory then goes to disk.
func (o *outbox) run(ctx context.Context) error {
	for ctx.Err() == nil {
		l, changed := o.agent.current()
		switch {
		case l != nil && len(o.frames) > 0:
			if err := o.drain(ctx, l); err != nil && ctx.Err() == nil {
				o.agent.cfg.Log.Warn("spooled events stay for the next session", "spool", o.name, "error", err)
				o.giveUp(ctx, l, changed)
			}
		case l != nil && !(o.durable && o.journal != nil):
			o.forward(ctx, l, changed)
		default:
			o.spoolOnce(ctx, changed)
		}
	}
	for len(o.queue) > 0 {
		o.spool(<-o.queue)
	}
	return o.close()
}

// forward sends events as they come while the link lasts.
func (o *outbox) forward(ctx context.Context, l *link, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			return
		case p := <-o.queue:
			if o.pace.wait(ctx) != nil {
				o.spool(p)
				return
			}
			err := l.send(kindEvent, p.body)
			switch {
			case err == nil:
				o.agent.counts.sent.Add(1)
				continue
			case errkind.Is(err, errkind.Corrupt):
				o.lose(1, err)
				continue
			}
			o.spool(p)
			o.giveUp(ctx, l, changed)
			return
		}
	}
}

// spoolOnce keeps the next events on disk, as many as are there.
func (o *outbox) spoolOnce(ctx context.Context, changed <-chan struct{}) {
	if o.journal == nil { // the queue itself keeps them; what comes beyond is refused where it comes from
		select {
		case <-ctx.Done():
		case <-changed:
		}
		return
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case p := <-o.queue:
		o.spool(p)
	}
}

// giveUp ends a link that does not do, and keeps events on disk until there is another.
func (o *outbox) giveUp(ctx context.Context, l *link, changed <-chan struct{}) {
	_ = l.conn.Close() // its reader sees it, and ends the session
	for ctx.Err() == nil {
		select {
		case <-changed:
			return
		default:
			o.spoolOnce(ctx, changed)
		}
	}
}

// spool writes an event to disk, and those that wait behind it with the same write.
func (o *outbox) spool(first parcel) {
	batch := []parcel{first}
	size := len(first.body)
	for len(batch) < batchEvents && size < batchBytes && len(o.queue) > 0 {
		p := <-o.queue
		batch = append(batch, p)
		size += len(p.body)
	}
	err := o.append(batch)
	if err != nil {
		o.lose(len(batch), err)
	} else {
		o.agent.counts.spooled.Add(uint64(len(batch)))
	}
	for _, p := range batch {
		if p.kept != nil {
			p.kept <- err
		}
	}
}

func (o *outbox) append(batch []parcel) error {
	if o.journal == nil {
		return errkind.Errorf(errkind.Unavailable, "there is no folder to spool in (cache-dir)")
	}
	content := []byte{frameEvents}
	for _, p := range batch {
		content = append(binary.AppendUvarint(content, uint64(len(p.body))), p.body...)
	}
	o.makeRoom(int64(len(content)))
	sequence, err := o.journal.Append(content)
	if err != nil {
		return err
	}
	o.remember(sequence, len(batch))
	return nil
}

// makeRoom drops the oldest segments while the spool would be larger than it may.
func (o *outbox) makeRoom(more int64) {
	for {
		segments := o.journal.Segments()
		total := more
		for _, s := range segments {
			total += s.Bytes
		}
		if total <= o.agent.cfg.SpoolBytes || len(segments) < 2 {
			return
		}
		gone := segments[1].Before
		if err := o.journal.Drop(gone); err != nil {
			o.agent.cfg.Log.Error("cannot remove an old part of the spool", "spool", o.name, "error", err)
			return
		}
		if n := o.forget(gone); n > 0 {
			o.lose(n, errkind.Errorf(errkind.Overloaded, "the spool is full (%d bytes); the oldest events go first",
				o.agent.cfg.SpoolBytes))
		}
	}
}

// lose counts events that nobody will get, and says why.
func (o *outbox) lose(n int, why error) {
	o.agent.counts.dropped.Add(uint64(n))
	o.agent.cfg.Log.Error("events are lost", "spool", o.name, "events", n, "error", why)
}

var errBatch = errors.New("enough for now")

// confirmTime bounds how long a backend may take to prove that it read what was sent.
const confirmTime = time.Minute

// drain sends the oldest spooled events, waits until the backend has read them, and forgets them.
func (o *outbox) drain(ctx context.Context, l *link) error {
	var batch [][]byte
	upTo, size := uint64(0), 0
	err := o.journal.Each(o.frames[0].sequence-1, func(sequence uint64, content []byte) error {
		upTo = sequence
		if content[0] == frameEvents {
			if err := eachEvent(content[1:], func(e []byte) { batch = append(batch, append([]byte(nil), e...)) }); err != nil {
				return err
			}
			size += len(content)
		}
		if size >= batchBytes || len(batch) >= batchEvents {
			return errBatch
		}
		return nil
	})
	if err != nil && !errors.Is(err, errBatch) {
		o.lose(o.forget(o.journal.Sequence()), err)
		return nil
	}
	for _, body := range batch {
		if err := o.paced(ctx, l); err != nil {
			return err
		}
		err := l.send(kindEvent, body)
		if errkind.Is(err, errkind.Corrupt) {
			o.lose(1, err)
			continue
		}
		if err != nil {
			return err
		}
		o.agent.counts.sent.Add(1)
	}
	if len(batch) > 0 {
		confirm, cancel := context.WithTimeout(ctx, confirmTime)
		defer cancel()
		if err := l.confirm(confirm); err != nil {
			return err
		}
	}
	o.forget(upTo)
	if _, err := o.journal.Append(binary.BigEndian.AppendUint64([]byte{frameSent}, upTo)); err != nil {
		o.agent.cfg.Log.Warn("cannot record which events were sent; they will be sent again after a restart", "spool", o.name,
			"error", err)
	}
	return o.journal.Drop(upTo)
}

// paced waits until the next event may go, and keeps what comes meanwhile on disk.
func (o *outbox) paced(ctx context.Context, l *link) error {
	turn := o.pace.next()
	for {
		select {
		case <-l.done:
			return errLinkEnded
		case <-ctx.Done():
			return ctx.Err()
		case p := <-o.queue:
			o.spool(p)
		case <-turn:
			return nil
		}
	}
}

// waiting returns how many events were not sent yet.
func (o *outbox) waiting() int64 { return o.depth.Load() + int64(len(o.queue)) }
