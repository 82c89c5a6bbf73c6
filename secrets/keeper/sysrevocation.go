package keeper

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// backlogMost is how far the leases that wait at a target are counted.
const backlogMost = 100_000

// revocation tells of each mount with leases how their revocation goes.
func (s *system) revocation(c *sysCall) (any, error) {
	names, err := s.k.targetNames(c)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, e := range c.Tables.Mounts.All() {
		paths[e.Accessor] = e.Path
	}
	list := []map[string]any{}
	for _, name := range names {
		due, err := s.k.backlog(c, name, c.Now)
		if err != nil {
			return nil, err
		}
		list = append(list, s.k.targetShown(name, paths[name], due, c.Now))
	}
	jobs, err := s.k.records.Under.Scan(c, jobPrefix, storage.After(jobPrefix), 0)
	return map[string]any{"targets": list, "prefixes_waiting": len(jobs)}, err
}

// targetShown is one mount's state; path is "" of one that is no mount any more.
func (k *Keeper) targetShown(name, path string, due int, now time.Time) map[string]any {
	k.targets.mu.Lock()
	defer k.targets.mu.Unlock()
	t := k.targets.withLocked(name)
	out := map[string]any{"accessor": name, "mount": path, "due": due, "in_flight": t.under, "concurrency": t.pace.most(now), "paused": t.paused,
		"revoked": t.revoked, "failed": t.failed, "last_error": t.lastError, "latency_ms": float64(t.pace.latency.Microseconds()) / 1000,
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
func (k *Keeper) backlog(ctx context.Context, name string, now time.Time) (n int, err error) {
	prefix := leaseDuePrefix + name + "/"
	end := fmt.Sprintf("%s%020d", prefix, max(now.UnixNano(), 0)+1)
	for from := prefix; n < backlogMost; {
		records, err := k.records.Under.Scan(ctx, from, end, sealed.ScanAtOnce)
		if err != nil || len(records) == 0 {
			return n, err
		}
		n += len(records)
		from = records[len(records)-1].Key + "\x00"
	}
	return n, nil
}

func (s *system) revocationPause(c *sysCall) (any, error) { return nil, s.setPaused(c, true) }

func (s *system) revocationResume(c *sysCall) (any, error) { return nil, s.setPaused(c, false) }

// setPaused stops or goes on with the revocation of a mount's leases, those of all mounts where none is named. It is
// stored: a server that takes over keeps to it.
func (s *system) setPaused(c *sysCall, paused bool) error {
	path := strings.Trim(c.f.String("mount"), "/")
	if err := c.f.Err(); err != nil {
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
	if err := s.k.records.Commit(c, ops); err != nil {
		return err
	}
	s.k.targets.mu.Lock()
	defer s.k.targets.mu.Unlock()
	for _, name := range names {
		t := s.k.targets.withLocked(name)
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

// loadPaused reads which mounts are paused.
func (k *Keeper) loadPaused(ctx context.Context) error {
	records, err := k.records.Under.Scan(ctx, pausedPrefix, storage.After(pausedPrefix), 0)
	k.targets.mu.Lock()
	defer k.targets.mu.Unlock()
	for _, t := range k.targets.byName {
		t.paused = false
	}
	for _, r := range records {
		k.targets.withLocked(strings.TrimPrefix(r.Key, pausedPrefix)).paused = true
	}
	return err
}

// share is how many tokens and leases one role of one mount has.
type share struct {
	Mount  string `json:"mount"`
	Type   string `json:"type"`
	Role   string `json:"role"`
	Tokens int    `json:"tokens"`
	Leases int    `json:"leases"`
}

// attributed is a count of all, and when it was made.
type attributed struct {
	at     time.Time
	shares []share // the greatest first
	tokens int
	leases int
}

// attributionAge is for how long a count of all tokens and leases is told again: it reads each of them.
const attributionAge = 10 * time.Second

// attribution tells whose the live tokens and leases are, by mount and role.
func (s *system) attribution(c *sysCall) (any, error) {
	limit := c.f.Int("limit", 100)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, errkind.New(errkind.Invalid, `field "limit": must be above 0`)
	}
	a, err := s.k.attribute(c, c.Tables, c.Now)
	if err != nil {
		return nil, err
	}
	shown := a.shares[:min(limit, len(a.shares))]
	return map[string]any{"tokens": a.tokens, "leases": a.leases, "as_of": a.at.UTC().Format(time.RFC3339), "roles": len(a.shares), "by_role": shown}, nil
}

// attribute counts the live tokens and leases, or gives a count that is not old.
func (k *Keeper) attribute(ctx context.Context, st *tables.Tables, now time.Time) (*attributed, error) {
	k.counting.Lock()
	defer k.counting.Unlock()
	if a := k.counted; a != nil && now.Sub(a.at) >= 0 && now.Sub(a.at) < attributionAge {
		return a, nil
	}
	a, by := &attributed{at: now}, map[[2]string]*share{}
	of := func(path, role string) *share {
		e, rest := st.Mounts.Route(path)
		if e == nil {
			e = &mount.Entry{}
		}
		if role == "" {
			role = rest
		}
		one := by[[2]string{e.Path, role}]
		if one == nil {
			one = &share{Mount: e.Path, Type: e.Type, Role: role}
			by[[2]string{e.Path, role}] = one
		}
		return one
	}
	err := k.eachToken(ctx, func(t *token.Token) {
		if !t.Expired(now) {
			of(t.Path, t.Role).Tokens++
			a.tokens++
		}
	})
	if err != nil {
		return nil, err
	}
	err = k.eachLease(ctx, func(id string) error {
		if _, isToken := token.OfLease(id); !isToken {
			of(id[:max(strings.LastIndexByte(id, '/'), 0)], "").Leases++
			a.leases++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.shares = make([]share, 0, len(by))
	for _, one := range by {
		a.shares = append(a.shares, *one)
	}
	slices.SortFunc(a.shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.Tokens+b.Leases, a.Tokens+a.Leases), strings.Compare(a.Mount, b.Mount), strings.Compare(a.Role, b.Role))
	})
	k.counted = a
	return a, nil
}

// eachToken calls each with every token that is stored. Damaged records are left out.
func (k *Keeper) eachToken(ctx context.Context, each func(*token.Token)) error {
	for from := token.Records; ; {
		records, damaged, err := k.records.Barrier.Scan(ctx, from, storage.After(token.Records), sealed.ScanAtOnce)
		if err != nil || len(records)+len(damaged) == 0 {
			return err
		}
		for _, d := range damaged {
			from = max(from, d.Key+"\x00")
		}
		for _, r := range records {
			from = max(from, r.Key+"\x00")
			if t, err := token.Decode(r); err == nil {
				each(t)
			}
		}
	}
}
