package counter

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/logrecord"
)

// Replica stores records on another server, from an offset on. It returns when they are durable and counted there, or
// when that server needs them no more; an error says that this counter may not take events any longer.
type Replica func(ctx context.Context, from uint64, data [][]byte) error

// role is whether the counter takes events itself, or what another server's counter took.
type role struct {
	mu     sync.Mutex  // guards what follows, and the order of all appends; before Counter.mu
	leads  atomic.Bool // changes with mu held
	epoch  uint64
	tail   uint64             // the offset of the next record
	others map[string]Replica // that have to have a record before it is acknowledged
	broken chan error         // has what ends the work of now, so that the log is read again
}

var (
	errMoved  = errkind.New(errkind.NotLeader, "usage: another server counts these events now: send them again")
	errFenced = errkind.New(errkind.Conflict, "usage: a newer lead of this part is known")
)

// copies has the others store entries. It needs mu.
func (r *role) copies(ctx context.Context, entries []eventlog.Entry) error {
	if !r.leads.Load() {
		return errMoved
	}
	if len(r.others) == 0 {
		return nil
	}
	data := make([][]byte, len(entries))
	for i, e := range entries {
		data[i] = e.Data
	}
	for _, store := range r.others {
		if err := store(ctx, r.tail, data); err != nil {
			r.leads.Store(false)
			return errkind.E(errkind.Unavailable, "usage: these events were not copied: send them again", err)
		}
	}
	return nil
}

// moved takes in where entries were stored. It needs mu.
func (r *role) moved(offsets []uint64) error {
	if offsets[0] != r.tail {
		return errkind.Errorf(errkind.Corrupt, "usage: the log stored a record at %d, not at %d", offsets[0], r.tail)
	}
	r.tail = offsets[len(offsets)-1] + 1
	return nil
}

// fail ends the work of now, so that the log is read again.
func (r *role) fail(err error) {
	select {
	case r.broken <- err:
	default:
	}
}

// Share is a counter as the counters of the same part on other servers see it: one that leads, or that follows.
type Share struct{ *Counter }

// Share is the counter's.
func (c *Counter) Share() Share { return Share{c} }

// begin opens the counter for who may give it events.
func (c Share) begin() {
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	c.role.others = map[string]Replica{}
	c.role.leads.Store(!c.cfg.Follows)
	select {
	case <-c.role.broken: // of before
	default:
	}
	c.setOpen(!c.cfg.Follows)
	c.warm.Store(true)
}

func (c Share) setOpen(open bool) {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	c.door.set(open)
}

// door is open while batches are taken.
type door struct {
	open   bool
	opened chan struct{} // closed while it is open
}

func (d *door) set(open bool) {
	switch {
	case open && !d.open:
		close(d.opened)
	case !open && d.open:
		d.opened = make(chan struct{})
	}
	d.open = open
}

// Opened is closed while the counter takes batches.
func (c Share) Opened() <-chan struct{} {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	return c.door.opened
}

// detach ends the use of the log.
func (c Share) detach() {
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	c.role.leads.Store(false)
	c.warm.Store(false)
	c.mu.Lock()
	c.log = nil
	c.mu.Unlock()
}

// watch ends the work of now where a Feed has failed half way.
func (c Share) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.role.broken:
		return err
	}
}

// Leads says whether the counter takes events.
func (c *Counter) Leads() bool { return c.role.leads.Load() }

// Lead has the counter take events from now on, with those others.
func (c Share) Lead(epoch uint64, others map[string]Replica) error {
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	if !c.warm.Load() || epoch < c.role.epoch {
		return errStarting
	}
	c.role.epoch, c.role.others = epoch, others
	c.role.leads.Store(true)
	c.setOpen(true)
	return nil
}

// Follow has the counter take nothing but what Feed gives it.
func (c Share) Follow(epoch uint64) {
	c.role.mu.Lock()
	c.followLocked(epoch)
	c.role.mu.Unlock()
	c.shut()
}

func (c Share) followLocked(epoch uint64) {
	c.role.epoch, c.role.others = max(epoch, c.role.epoch), map[string]Replica{}
	c.role.leads.Store(false)
	c.setOpen(false)
}

// Yield gives the counter's place to another one, with no append under way: give has that decided. What waits to be
// stored goes to whoever leads then. Without an error the counter follows.
func (c Share) Yield(epoch uint64, give func() error) error {
	c.role.mu.Lock()
	err := give()
	if err == nil {
		c.followLocked(epoch)
	}
	c.role.mu.Unlock()
	if err == nil {
		c.shut()
	}
	return err
}

// Attach gives the counter another server to copy to. last is called with no append under way, and stores what that
// server lacks up to tail.
func (c Share) Attach(name string, r Replica, last func(tail uint64) error) error {
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	if !c.role.leads.Load() {
		return errMoved
	}
	if err := last(c.role.tail); err != nil {
		return err
	}
	c.role.others[name] = r
	return nil
}

// Renew notes a newer epoch of a lead, and the only servers that it copies to from now on.
func (c Share) Renew(epoch uint64, keep ...string) {
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	c.role.epoch = max(epoch, c.role.epoch)
	for name := range c.role.others {
		if !slices.Contains(keep, name) {
			delete(c.role.others, name)
		}
	}
}

// Tail is where the log ends, and begins.
func (c Share) Tail(ctx context.Context) (eventlog.Bound, error) {
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	if log == nil || !c.warm.Load() {
		return eventlog.Bound{}, errStarting
	}
	bounds, err := log.Bounds(ctx)
	if err != nil {
		return eventlog.Bound{}, err
	}
	return bounds[0], nil
}

// wholeGroup is the group by which a log says that it was led, or was a copy, on this disk.
const wholeGroup = "whole"

// Whole says whether the log has all that the part has acknowledged while it led or was named as the copy. One on a
// disk that was replaced has not.
func (c Share) Whole(ctx context.Context) (bool, error) {
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	if log == nil || !c.warm.Load() {
		return false, errStarting
	}
	list, err := log.Committed(ctx, wholeGroup)
	return len(list) > 0, err
}

// SetWhole makes it so, durably.
func (c Share) SetWhole(ctx context.Context) error {
	is, err := c.Whole(ctx)
	if err != nil || is {
		return err
	}
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	if log == nil {
		return errStarting
	}
	return log.Commit(ctx, wholeGroup, []eventlog.Position{{}})
}

// Records reads records from an offset on, up to a limit, about so many bytes at once.
func (c Share) Records(ctx context.Context, from, to uint64, bytes int) (list [][]byte, err error) {
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	if log == nil {
		return nil, errStarting
	}
	if from >= to {
		return nil, nil
	}
	reader, err := log.Reader(map[int]uint64{0: from})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for size := 0; size < bytes && from < to; {
		got, err := reader.Next(ctx)
		if err != nil {
			return list, err
		}
		for _, r := range got {
			if r.Offset >= to || size >= bytes {
				break
			}
			list = append(list, slices.Clone(r.Data))
			size += len(r.Data)
			from = r.Offset + 1
		}
	}
	return list, nil
}

// Export is the state as of now, and the offset of the record behind it. It waits for a correction under way.
func (c Share) Export() (state []byte, next uint64, err error) {
	c.settle(0)
	c.mu.Lock()
	if c.state.correcting != nil {
		c.mu.Unlock()
		return nil, 0, errStarting // it has failed, or another one has begun
	}
	held := c.state.freeze()
	c.mu.Unlock()
	return c.encode(held), held.next, nil
}

// Feed stores and counts records that another server's counter took, from an offset on, and returns where this log
// ends: records beyond it are refused. What is here already is compared.
func (c Share) Feed(ctx context.Context, epoch, from uint64, data [][]byte) (next uint64, err error) {
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	switch {
	case epoch < c.role.epoch || epoch == c.role.epoch && c.role.leads.Load():
		return c.role.tail, errFenced
	case c.role.leads.Load():
		c.followLocked(epoch)
	}
	c.role.epoch = max(epoch, c.role.epoch)
	if err := c.settled(ctx); err != nil {
		return c.role.tail, err
	}
	tail := c.role.tail
	if from > tail {
		return tail, nil
	}
	if known := min(int(tail-from), len(data)); known > 0 {
		have, err := c.Records(ctx, from, from+uint64(known), 64<<20)
		if err != nil {
			return tail, err
		}
		if !slices.EqualFunc(have, data[:known], bytes.Equal) {
			return tail, errkind.Errorf(errkind.Corrupt, "usage: other records stand at %d than those of the lead", from)
		}
		data = data[known:]
	}
	if len(data) == 0 {
		return tail, nil
	}
	return c.feedLocked(context.WithoutCancel(ctx), data)
}

// CatchUp counts what others have stored in a log that servers share: a lead before this one, or one that has not heard
// yet that it leads no more. What it is told while this counter appends fails that append, and all is read again.
func (c Share) CatchUp(ctx context.Context) error {
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	if err := c.settled(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	bounds, err := log.Bounds(ctx)
	if err != nil || bounds[0].Next <= c.role.tail {
		return err
	}
	next := bounds[0].Next
	err = scan(ctx, log, c.role.tail, next, c.meter.log, func(rec *logrecord.Record, offset uint64) error {
		return c.applyRecord(ctx, rec, offset, func(error) {})
	})
	if err != nil {
		c.role.fail(err) // a part of it may be counted
		return err
	}
	c.role.tail = next
	return nil
}

// settled waits until everything that is stored has been counted.
func (c Share) settled(ctx context.Context) error {
	for {
		changed := c.Changed()
		c.mu.Lock()
		log, next := c.log, c.state.next
		c.mu.Unlock()
		switch {
		case log == nil || !c.warm.Load():
			return errStarting
		case next == c.role.tail:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errkind.E(errkind.Unavailable, "usage", ctx.Err())
		}
	}
}

func (c Share) feedLocked(ctx context.Context, data [][]byte) (uint64, error) {
	var decoder logrecord.Reader
	records := make([]*logrecord.Record, len(data))
	entries := make([]eventlog.Entry, len(data))
	for i, d := range data {
		rec, err := decoder.Read(d)
		if err != nil {
			return c.role.tail, err
		}
		records[i], entries[i] = rec, eventlog.Entry{Data: d}
	}
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	offsets, err := log.Append(ctx, entries)
	if err == nil {
		err = c.role.moved(offsets)
	} else if errkind.Is(err, errkind.Overloaded) || errkind.Is(err, errkind.Unavailable) {
		return c.role.tail, err
	}
	for i := 0; i < len(records) && err == nil; i++ {
		err = c.applyRecord(ctx, records[i], offsets[i], func(error) {})
	}
	if err != nil {
		c.role.fail(err)
	}
	return c.role.tail, err
}
