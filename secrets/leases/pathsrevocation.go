package leases

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// backlogMost is how far the leases that wait at a target are counted.
const backlogMost = 100_000

// revocation tells of each mount with leases how their revocation goes.
func (o paths) revocation(c *system.Call) (any, error) {
	names, err := o.targetNames(c)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, e := range c.Tables.Mounts.All() {
		paths[e.Accessor] = e.Path
	}
	list := []map[string]any{}
	for _, name := range names {
		due, err := o.backlog(c, name, c.Now)
		if err != nil {
			return nil, err
		}
		one := o.targetShown(name, paths[name], due, c.Now)
		if err := o.ending(c, leaseDuePrefix+name+"/", c.Now, one); err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	tokens := map[string]any{}
	if err := o.ending(c, token.DuePrefix, c.Now, tokens); err != nil {
		return nil, err
	}
	jobs, err := o.records.Under.Scan(c, jobPrefix, storage.After(jobPrefix), 0)
	return map[string]any{"targets": list, "tokens": tokens, "prefixes_waiting": len(jobs)}, err
}

const (
	endingWithin = time.Hour
	endingMost   = 10_000 // how far what ends within that is counted
)

// ending tells when the first entry of an index of ends is due after now, and how many are within an hour: no more end
// by themselves, since renewals leave an entry where it was until its time.
func (o *Leases) ending(ctx context.Context, index string, now time.Time, into map[string]any) error {
	at := func(t time.Time) string { return fmt.Sprintf("%s%020d", index, max(t.UnixNano(), 0)+1) }
	first, err := o.records.Under.Scan(ctx, at(now), storage.After(index), 1)
	if err != nil {
		return err
	}
	into["next_end"], into["ending_within_hour"] = nil, 0
	if len(first) == 0 {
		return nil
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(first[0].Key, index), "/")
	nanos, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return nil // not an end: nothing is told of this index
	}
	into["next_end"] = time.Unix(0, nanos).UTC().Format(time.RFC3339)
	n := 0
	for from, end := first[0].Key, at(now.Add(endingWithin)); n < endingMost && from < end; {
		records, err := o.records.Under.Scan(ctx, from, end, sealed.ScanAtOnce)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			break
		}
		n += len(records)
		from = records[len(records)-1].Key + "\x00"
	}
	into["ending_within_hour"] = min(n, endingMost)
	return nil
}

// targetShown is one mount's state; path is "" of one that is no mount any more.
func (o *Leases) targetShown(name, path string, due int, now time.Time) map[string]any {
	o.targets.mu.Lock()
	defer o.targets.mu.Unlock()
	t := o.targets.withLocked(name)
	out := map[string]any{"accessor": name, "mount": path, "due": due, "in_flight": t.under,
		"concurrency": t.pace.most(now), "paused": t.paused,
		"revoked": t.revoked, "failed": t.failed, "last_error": t.lastError,
		"latency_ms": float64(t.pace.latency.Microseconds()) / 1000,
		"per_second": t.rate, "eta_seconds": nil, "circuit": "closed", "retry_after_seconds": 0}
	if !t.pace.openUntil.IsZero() {
		out["circuit"] = "half-open"
		if left := t.pace.openUntil.Sub(now); left > 0 {
			out["circuit"], out["retry_after_seconds"] = "open", task.Seconds(left)
		}
	}
	switch {
	case due == 0:
		out["eta_seconds"] = 0
	case t.rate > 0 && !t.paused:
		out["eta_seconds"] = int64(float64(due)/t.rate) + 1
	}
	return out
}

// backlog counts what is due at a target, up to backlogMost.
func (o *Leases) backlog(ctx context.Context, name string, now time.Time) (n int, err error) {
	prefix := leaseDuePrefix + name + "/"
	end := fmt.Sprintf("%s%020d", prefix, max(now.UnixNano(), 0)+1)
	for from := prefix; n < backlogMost; {
		records, err := o.records.Under.Scan(ctx, from, end, sealed.ScanAtOnce)
		if err != nil || len(records) == 0 {
			return n, err
		}
		n += len(records)
		from = records[len(records)-1].Key + "\x00"
	}
	return n, nil
}

func (o paths) revocationPause(c *system.Call) (any, error) { return nil, o.setPaused(c, true) }

func (o paths) revocationResume(c *system.Call) (any, error) { return nil, o.setPaused(c, false) }

// setPaused stops or goes on with the revocation of a mount's leases, those of all mounts where none is named. It is
// stored: a server that takes over keeps to it.
func (o paths) setPaused(c *system.Call, paused bool) error {
	path := strings.Trim(c.F.String("mount"), "/")
	if err := c.F.Err(); err != nil {
		return err
	}
	var names []string
	for _, e := range c.Tables.Mounts.All() {
		if path == "" || e.Path == path+"/" {
			names = append(names, e.Accessor)
		}
	}
	if len(names) == 0 {
		return errkind.Errorf(errkind.Invalid, "field \"mount\": nothing is mounted at %s/", path)
	}
	var ops []storage.Op
	for _, name := range names {
		op := storage.Delete(pausedPrefix + name)
		if paused {
			op = storage.Mark(pausedPrefix + name)
		}
		ops = append(ops, op)
	}
	if err := o.records.Commit(c, ops); err != nil {
		return err
	}
	o.targets.mu.Lock()
	defer o.targets.mu.Unlock()
	for _, name := range names {
		t := o.targets.withLocked(name)
		if t.paused = paused; !paused {
			t.pace.openUntil, t.pace.failures, t.pace.wait = time.Time{}, 0, 0 // who resumes has mended what failed
		}
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// Load reads which mounts are paused.
func (o *Leases) Load(ctx context.Context) error {
	records, err := o.records.Under.Scan(ctx, pausedPrefix, storage.After(pausedPrefix), 0)
	o.targets.mu.Lock()
	defer o.targets.mu.Unlock()
	for _, t := range o.targets.byName {
		t.paused = false
	}
	for _, r := range records {
		o.targets.withLocked(strings.TrimPrefix(r.Key, pausedPrefix)).paused = true
	}
	return err
}
