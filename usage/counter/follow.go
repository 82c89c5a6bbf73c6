package counter

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/logrecord"
)

// Replica stores records on another server, from an offset on. It returns when they are durable and counted there, or
// when that server needs them no more; an error says that this counter may not take events any longer.
type Replica func(ctx context.Context, from uint64, data [][]byte) error

// role is whether the counter takes events itself, or what another server's counter took.
//
// Two things are apart: whose turn it is to store, for which other servers, the disk and the Raft group are waited for,
// and what the role is, which is known, and changed, at once.
type role struct {
	turn   chan struct{} // has one element while somebody stores, or has that nobody does; taken before mu
	mu     sync.Mutex    // guards what follows, for moments; before Counter.mu
	leads  atomic.Bool   // changes with mu held
	epoch  uint64
	tail   uint64             // the offset of the next record; changes with the turn taken, and while the log is opened
	others map[string]Replica // that have to have a record before it is acknowledged
	broken chan error         // has what ends the work of now, so that the log is read again
	disk   atomic.Int32       // what the log says of its disk while it is open: newDisk, oldDisk
}

const newDisk, oldDisk = 1, 2

func newRole() role { return role{turn: make(chan struct{}, 1), broken: make(chan error, 1)} }

// take waits for the turn to store; leave gives it to who has waited longest.
func (r *role) take(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "usage: other records are being stored", ctx.Err())
	}
}

func (r *role) leave() { <-r.turn }

// end is where the log ends.
func (r *role) end() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tail
}

var (
	errMoved  = errkind.New(errkind.NotLeader, "usage: another server counts these events now: send them again")
	errFenced = errkind.New(errkind.Conflict, "usage: a newer lead of this part is known")
)

// copies has the others store entries. It needs the turn, and nothing else.
func (r *role) copies(ctx context.Context, entries []eventlog.Entry) error {
	r.mu.Lock()
	leads, tail := r.leads.Load(), r.tail
	others := make([]Replica, 0, len(r.others))
	for _, store := range r.others {
		others = append(others, store)
	}
	r.mu.Unlock()
	if !leads {
		return errMoved
	}
	if len(others) == 0 {
		return nil
	}
	data := make([][]byte, len(entries))
	for i, e := range entries {
		data[i] = e.Data
	}
	for _, store := range others {
		if err := store(ctx, tail, data); err != nil {
			r.mu.Lock()
			r.leads.Store(false) // nobody becomes the lead without the turn: it is this one that ends
			r.mu.Unlock()
			return errkind.E(errkind.Unavailable, "usage: these events were not copied: send them again", err)
		}
	}
	return nil
}

// moved takes in where entries were stored. It needs the turn.
func (r *role) moved(offsets []uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// detach ends the use of the log, when nobody stores in it. Who waits for what is counted is told that nothing will be.
func (c Share) detach() {
	c.role.mu.Lock()
	c.role.leads.Store(false)
	c.role.disk.Store(0)
	c.warm.Store(false)
	c.role.mu.Unlock()
	c.cfg.Signal.tell()
	_ = c.role.take(context.Background()) // whoever has the turn has a deadline
	defer c.role.leave()
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

// Lead has the counter take events from now on, with those others, when nothing of before is being stored any more.
func (c Share) Lead(ctx context.Context, epoch uint64, others map[string]Replica) error {
	if err := c.role.take(ctx); err != nil {
		return err
	}
	defer c.role.leave()
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

// Follow has the counter take nothing but what Feed gives it. What is being stored now ends: Still waits for that.
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

// Still returns when nothing is being stored that the counter took before.
func (c Share) Still(ctx context.Context) error {
	err := c.role.take(ctx)
	if err == nil {
		c.role.leave()
	}
	return err
}

// Yield gives the counter's place to another one, with no append under way: give has that decided, and appends wait for
// it. What waits to be stored goes to whoever leads then. Without an error the counter follows.
func (c Share) Yield(ctx context.Context, epoch uint64, give func() error) error {
	if err := c.role.take(ctx); err != nil {
		return err
	}
	defer c.role.leave()
	if err := give(); err != nil {
		return err
	}
	c.Follow(epoch)
	return nil
}

// Attach gives the counter another server to copy to. last is called with no append under way, and stores what that
// server lacks up to tail: appends wait for it, and nothing else does.
func (c Share) Attach(ctx context.Context, name string, r Replica, last func(tail uint64) error) error {
	if err := c.role.take(ctx); err != nil {
		return err
	}
	defer c.role.leave()
	if !c.Leads() {
		return errMoved
	}
	if err := last(c.role.end()); err != nil {
		return err
	}
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	if !c.role.leads.Load() {
		return errMoved
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

// Anew says whether the log is on a new disk, as soon as it is open: the state may still come from elsewhere, for long.
func (c Share) Anew() (is, known bool) {
	disk := c.role.disk.Load()
	return disk == newDisk, disk != 0
}

// look notes what a log that was just opened says of its disk. One that is elsewhere has none that could be new.
func (c Share) look(ctx context.Context, log eventlog.Log) error {
	disk := int32(oldDisk)
	if _, own := log.(beginner); own {
		list, err := log.Committed(ctx, wholeGroup)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			disk = newDisk
		}
	}
	c.role.disk.Store(disk)
	return nil
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
	err = log.Commit(ctx, wholeGroup, []eventlog.Position{{}})
	if err == nil {
		c.role.disk.Store(oldDisk)
	}
	return err
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
	if err := c.role.take(ctx); err != nil {
		return c.role.end(), err
	}
	defer c.role.leave()
	if err := c.fenced(epoch); err != nil {
		return c.role.end(), err
	}
	if err := c.settled(ctx); err != nil {
		return c.role.end(), err
	}
	tail := c.role.end()
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
	return c.store(context.WithoutCancel(ctx), data)
}

// fenced takes in the epoch of a lead: an older one than is known is refused, and to a newer one this counter gives
// way.
func (c Share) fenced(epoch uint64) error {
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	switch {
	case epoch < c.role.epoch || epoch == c.role.epoch && c.role.leads.Load():
		return errFenced
	case c.role.leads.Load():
		c.followLocked(epoch)
	}
	c.role.epoch = max(epoch, c.role.epoch)
	return nil
}

// CatchUp counts what others have stored in a log that servers share: a lead before this one, or one that has not heard
// yet that it leads no more. What it is told while this counter appends fails that append, and all is read again.
func (c Share) CatchUp(ctx context.Context) error {
	if err := c.role.take(ctx); err != nil {
		return err
	}
	defer c.role.leave()
	if err := c.settled(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	bounds, err := log.Bounds(ctx)
	tail := c.role.end()
	if err != nil || bounds[0].Next <= tail {
		return err
	}
	next := bounds[0].Next
	err = scan(ctx, log, tail, next, c.meter.log, func(rec *logrecord.Record, offset uint64) error {
		return c.applyRecord(ctx, rec, offset, func(error) {})
	})
	if err != nil {
		c.role.fail(err) // a part of it may be counted
		return err
	}
	c.role.mu.Lock()
	c.role.tail = next
	c.role.mu.Unlock()
	return nil
}

// settledWithin bounds what a record of another server waits for those that were taken before it.
const settledWithin = 10 * time.Second

// settled waits until everything that is stored has been counted.
func (c Share) settled(ctx context.Context) error {
	if is, err := c.counted(); is || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settledWithin)
	defer cancel()
	for {
		changed := c.Changed()
		if is, err := c.counted(); is || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errkind.E(errkind.Unavailable, "usage", ctx.Err())
		}
	}
}

// counted says whether everything that is stored has been counted.
func (c Share) counted() (bool, error) {
	c.mu.Lock()
	log, next := c.log, c.state.next
	c.mu.Unlock()
	if log == nil || !c.warm.Load() {
		return false, errStarting
	}
	return next == c.role.end(), nil
}

// store stores and counts records behind the last one. It needs the turn.
func (c Share) store(ctx context.Context, data [][]byte) (uint64, error) {
	var decoder logrecord.Reader
	records := make([]*logrecord.Record, len(data))
	entries := make([]eventlog.Entry, len(data))
	for i, d := range data {
		rec, err := decoder.Read(d)
		if err != nil {
			return c.role.end(), err
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
		return c.role.end(), err
	}
	for i := 0; i < len(records) && err == nil; i++ {
		err = c.applyRecord(ctx, records[i], offsets[i], func(error) {})
	}
	if err != nil {
		c.role.fail(err)
	}
	return c.role.end(), err
}
