package counter

import (
	"cmp"
	"context"
	"slices"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/logrecord"
)

// Run opens the log, reads what stands in it, and counts until ctx ends. After a failure it begins again.
func (c *Counter) Run(ctx context.Context) error {
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}
	for {
		began := c.cfg.Clock.Now()
		err := c.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if c.cfg.Clock.Since(began) > time.Minute {
			pause = backoff.Backoff{Min: pause.Min, Max: pause.Max}
		}
		c.cfg.Log.Error("usage: the log is opened again", "error", err)
		t := c.cfg.Clock.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// once is Run until something fails.
func (c *Counter) once(ctx context.Context) (err error) {
	if _, err := c.cfg.Key(ctx); err != nil {
		return err
	}
	log, err := c.cfg.Open()
	if err != nil {
		return err
	}
	defer func() {
		c.shut()
		c.Share().detach()
		c.jobs.Wait()
		if failed := log.Close(); failed != nil && err == nil {
			err = failed
		}
	}()
	if err := c.Share().look(ctx, log); err != nil {
		return err
	}
	snapshots := &saver{c: c, log: log}
	if err := c.load(ctx, log, snapshots); err != nil {
		return err
	}
	c.Share().begin()
	stored := make(chan []*waiting, 4) // full: the next batches are not appended before one is applied
	var parts life.Group
	parts.Add("janitor", eventlog.Janitor{Log: log, Groups: []string{Group}, Keep: c.cfg.Keep, Clock: c.cfg.Clock,
		Logger: c.cfg.Log}.Run)
	parts.Add("snapshots", snapshots.run)
	parts.Add("feed", c.Share().watch)
	parts.Add("apply", func(context.Context) error { return c.applyAll(stored) })
	parts.Add("append", func(ctx context.Context) error { defer close(stored); return c.appendAll(ctx, log, stored) })
	err = parts.Run(ctx)
	if ctx.Err() != nil && err == nil { // a clean end: the next start reads nothing twice
		final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		c.settle(0)
		return snapshots.last(final)
	}
	return err
}

// load makes the state anew: the newest snapshot, and what stands in the log behind it. It tells the saver of both.
func (c *Counter) load(ctx context.Context, log eventlog.Log, told *saver) error {
	bounds, err := log.Bounds(ctx)
	if err != nil {
		return err
	}
	state, saved, err := c.restore(ctx, log, bounds[0])
	if err != nil {
		return err
	}
	told.saved = saved
	if bounds, err = log.Bounds(ctx); err != nil { // it may begin elsewhere now
		return err
	}
	c.role.mu.Lock()
	c.role.tail = bounds[0].Next
	c.role.mu.Unlock()
	c.mu.Lock()
	c.state, c.log = state, log
	c.cfg.Signal.tell()
	c.mu.Unlock()
	return scan(ctx, log, state.next, bounds[0].Next, c.meter.log, func(rec *logrecord.Record, offset uint64) error {
		var failed error
		err := c.applyRecord(ctx, rec, offset, func(err error) { failed = err })
		c.settle(0)
		if told.behind++; rec.Correction != nil { // it has read the log
			told.behind += muchBehind
		}
		return cmp.Or(err, notConflict(failed))
	})
}

// scan reads the records of a log in [from, to). It counts the bytes that it reads, where they are a part of the
// warm-up.
func scan(ctx context.Context, log eventlog.Log, from, to uint64, bytes *telemetry.Counter,
	f func(*logrecord.Record, uint64) error,
) error {
	if from >= to {
		return nil
	}
	reader, err := log.Reader(map[int]uint64{0: from})
	if err != nil {
		return err
	}
	defer reader.Close()
	var decoder logrecord.Reader
	for {
		list, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		for _, r := range list {
			if r.Offset >= to {
				return nil
			}
			bytes.Add(uint64(len(r.Data)))
			rec, err := decoder.Read(r.Data)
			if err == nil {
				err = f(rec, r.Offset)
			}
			if err != nil || r.Offset+1 == to {
				return err
			}
		}
	}
}

// notConflict leaves out what says that a correction could not be done then, and cannot be done now.
func notConflict(err error) error {
	if errkind.Is(err, errkind.Conflict) {
		return nil
	}
	return err
}

// applyRecord applies a record that was read from the log. corrected is told what became of a correction.
func (c *Counter) applyRecord(ctx context.Context, rec *logrecord.Record, offset uint64, corrected func(error)) error {
	key, err := c.cfg.Key(ctx)
	if err != nil {
		return err
	}
	observed, err := rec.Observe(key)
	if err != nil {
		return err
	}
	defer c.cfg.Signal.tell()
	if rec.Correction != nil {
		c.correct(ctx, key, rec, observed, offset, corrected)
		return nil
	}
	c.settle(maxMeanwhile)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.apply(rec, observed, offset)
	return nil
}

// appendAll stores what arrives, as much at once as there is.
func (c *Counter) appendAll(ctx context.Context, log eventlog.Log, stored chan<- []*waiting) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.arrived:
		}
		list := c.gather()
		if len(list) == 0 {
			continue
		}
		if err := c.role.take(ctx); err != nil { // the counter ends
			c.refuse(list, errNotTaken)
			continue
		}
		err := c.append(ctx, log, list)
		c.role.leave()
		if err != nil {
			return err
		}
		if list[0].err == nil {
			stored <- list // applyAll takes it until this channel is closed
		}
	}
}

// append stores batches, on the servers that have copies first. An error is one after which the log must be read again.
// It needs the turn.
func (c *Counter) append(ctx context.Context, log eventlog.Log, list []*waiting) error {
	ctx = context.WithoutCancel(ctx) // who was taken is told what became of it
	entries := make([]eventlog.Entry, len(list))
	for i, w := range list {
		entries[i] = eventlog.Entry{Data: w.data}
	}
	began := c.cfg.Clock.Now()
	err := c.role.copies(ctx, entries)
	if err != nil {
		c.refuse(list, err)
		return nil
	}
	offsets, err := log.Append(ctx, entries)
	c.meter.append.Observe(c.cfg.Clock.Since(began))
	if err != nil {
		c.refuse(list, err)
		if errkind.Is(err, errkind.Overloaded) || errkind.Is(err, errkind.Unavailable) {
			c.cfg.Log.Warn("usage: the log takes nothing", "error", err)
			return nil
		}
		return err
	}
	for i, w := range list {
		w.offset = offsets[i]
	}
	if err := c.role.moved(offsets); err != nil { // somebody else stores here too: all is read again
		c.refuse(list, errkind.E(errkind.Unknown, "usage: send these events again", err))
		return err
	}
	return nil
}

func (c *Counter) refuse(list []*waiting, err error) {
	for _, w := range list {
		c.pending.Add(-int64(len(w.data)))
		w.end(err)
	}
}

// applyAll counts what was stored, in the order of the log, and tells the senders. A correction ends later, and what
// comes behind it does not wait.
func (c *Counter) applyAll(stored <-chan []*waiting) error {
	for list := range stored {
		began := c.cfg.Clock.Now()
		for rest := list; len(rest) > 0; {
			if w := rest[0]; w.Record.Correction != nil {
				c.correct(context.Background(), c.keyNow(), w.Record, w.Observed, w.offset, func(err error) {
					w.err = err
					c.finish(w)
				})
				rest = rest[1:]
				continue
			}
			n := slices.IndexFunc(rest, func(w *waiting) bool { return w.Record.Correction != nil })
			if n < 0 {
				n = len(rest)
			}
			c.applySome(rest[:n])
			rest = rest[n:]
		}
		c.meter.apply.Observe(c.cfg.Clock.Since(began))
		for _, w := range list {
			if w.Record.Correction == nil {
				c.finish(w)
			}
		}
	}
	return nil
}

func (c *Counter) applySome(list []*waiting) {
	c.settle(maxMeanwhile)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range list {
		w.outcome = Verdicts{Offset: w.offset, Of: c.state.apply(w.Record, w.Observed, w.offset)}
	}
	c.cfg.Signal.tell()
}

// finish tells a sender.
func (c *Counter) finish(w *waiting) {
	c.pending.Add(-int64(len(w.data)))
	c.count(w)
	close(w.done)
}

func (c *Counter) count(w *waiting) {
	var of [8]uint64
	for _, v := range w.outcome.Of {
		of[v]++
	}
	c.meter.accepted.Add(of[dedup.New])
	c.meter.duplicate.Add(of[dedup.Duplicate])
	c.meter.late.Add(of[dedup.Late])
	c.meter.refused.Add(of[dedup.Full] + of[dedup.Fenced] + of[dedup.Unknown])
}
