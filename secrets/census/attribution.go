package census

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// held is how many tokens and leases somebody has, and how many more than in the count that growth is told from.
type held struct {
	Tokens int `json:"tokens"`
	Leases int `json:"leases"`
	Grew   int `json:"grew"`
}

func (h held) all() int { return h.Tokens + h.Leases }

// share is what one role of one mount has.
type share struct {
	Mount string `json:"mount"`
	Type  string `json:"type"`
	Role  string `json:"role"`
	held
}

func (s *share) key() [2]string { return [2]string{s.Mount, s.Role} }

// owner is what one entity has: its tokens, and the leases that were made with them. Tokens without an entity are of
// nobody.
type owner struct {
	Entity    string `json:"entity"`
	Name      string `json:"name"`      // of now, not of the count
	Namespace string `json:"namespace"` // its path; "" is the root one
	held
	space string // the namespace's id, as in names of tokens
}

func (o *owner) key() [2]string { return [2]string{o.space, o.Entity} }

// named is the owner with the names of its entity and namespace, where they are there yet.
func (o owner) named(ctx context.Context, st *tables.Tables) owner {
	in := st.In(o.space)
	if in == nil {
		return o
	}
	o.Namespace = in.Path()
	if in.Identities != nil {
		if e, err := in.Identities.Entity(ctx, o.Entity); err == nil && e != nil {
			o.Name = e.Name
		}
	}
	return o
}

// attributed is a count of all, and when it was made.
type attributed struct {
	at     time.Time
	shares []share // the greatest first
	owners []owner // the same
	tokens int
	leases int

	entities int
	since    time.Time // that growth is told from
}

// attributionAge is for how long a count of all tokens and leases is told again: it reads each of them.
const attributionAge = 10 * time.Second

// growthAge is how old the count is, at most and where one was asked for meanwhile, that growth is told from.
const growthAge = time.Hour

// mostKept bounds the entities that are told of, and the roles and entities that growth is told from: the greatest
// ones are kept.
const mostKept = 10_000

// past are counts that growth is told from: the newer one takes the older one's place in time.
type past struct{ older, newer *totals }

// totals are how many tokens and leases there were by role and by entity.
type totals struct {
	at     time.Time
	roles  counts
	owners counts
}

// counts are the greatest ones; one that is not among them had least at most.
type counts struct {
	by    map[[2]string]int
	least int
}

func (c *counts) add(key [2]string, n int) {
	if len(c.by) >= mostKept {
		c.least = max(c.least, n)
		return
	}
	c.by[key] = n
}

func (c *counts) of(key [2]string) int {
	if n, ok := c.by[key]; ok {
		return n
	}
	return c.least
}

// grow tells a count from the past how much it grew, and returns since when.
func (p *past) grow(a *attributed) time.Time {
	if p.newer == nil || a.at.Sub(p.newer.at) >= growthAge/2 || a.at.Before(p.newer.at) {
		t := &totals{at: a.at, roles: counts{by: map[[2]string]int{}}, owners: counts{by: map[[2]string]int{}}}
		for i := range a.shares {
			t.roles.add(a.shares[i].key(), a.shares[i].all())
		}
		for i := range a.owners {
			t.owners.add(a.owners[i].key(), a.owners[i].all())
		}
		if p.older = p.newer; p.older == nil || a.at.Before(p.older.at) {
			p.older = t
		}
		p.newer = t
	}
	for i := range a.shares {
		one := &a.shares[i]
		one.Grew = one.all() - p.older.roles.of(one.key())
	}
	for i := range a.owners {
		one := &a.owners[i]
		one.Grew = one.all() - p.older.owners.of(one.key())
	}
	return p.older.at
}

// attribution tells whose the live tokens and leases are, by mount and role and by entity, and how much they grew.
func (o *Census) attribution(c *system.Call) (any, error) {
	limit := c.F.Int("limit", 100)
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, errkind.New(errkind.Invalid, `field "limit": must be above 0`)
	}
	a, err := o.attribute(c, c.Tables, c.Now)
	if err != nil {
		return nil, err
	}
	owners := slices.Clone(a.owners[:min(limit, len(a.owners))])
	for i, one := range owners {
		owners[i] = one.named(c, c.Tables)
	}
	return map[string]any{"tokens": a.tokens, "leases": a.leases, "as_of": a.at.UTC().Format(time.RFC3339),
		"roles": len(a.shares), "by_role": a.shares[:min(limit, len(a.shares))],
		"entities": a.entities, "by_entity": owners, "grown_since": a.since.UTC().Format(time.RFC3339)}, nil
}

// shares are what roles of mounts have, by the mount's path and the role.
type shares struct {
	st  *tables.Tables
	all map[[2]string]*share
}

// of is the share of the role, or of what a path has behind its mount.
func (s shares) of(path, role string) *share {
	in, e, rest := s.st.Route(path) // a mount's path is from the root: it names its namespace
	if e == nil {
		e = &mount.Entry{}
	}
	if role == "" {
		role = rest
	}
	at := in.Path() + e.Path
	one := s.all[[2]string{at, role}]
	if one == nil {
		one = &share{Mount: at, Type: e.Type, Role: role}
		s.all[[2]string{at, role}] = one
	}
	return one
}

// attribute counts the live tokens and leases, or gives a count that is not old.
func (o *Census) attribute(ctx context.Context, st *tables.Tables, now time.Time) (*attributed, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a := o.counted; a != nil && now.Sub(a.at) >= 0 && now.Sub(a.at) < attributionAge {
		return a, nil
	}
	a, by := &attributed{at: now}, shares{st, map[[2]string]*share{}}
	owners, made := map[[2]string]*owner{}, madeWith{records: o.records, atOnce: sealed.ScanAtOnce}
	err := o.eachToken(ctx, func(t *token.Token) error {
		if t.Expired(now) {
			return nil
		}
		by.of(t.Path, t.Role).Tokens++
		if a.tokens++; t.Entity == "" {
			return nil
		}
		key := [2]string{token.Space(t.Hash), t.Entity}
		one := owners[key]
		if one == nil {
			one = &owner{Entity: t.Entity, space: key[0]}
			owners[key] = one
		}
		leases, err := made.count(ctx, t.Hash)
		one.Tokens, one.Leases = one.Tokens+1, one.Leases+leases
		return err
	})
	if err != nil {
		return nil, err
	}
	err = o.records.EachKey(ctx, token.LeasePrefix, func(id string) error {
		if _, isToken := token.OfLease(id); !isToken {
			by.of(id[:max(strings.LastIndexByte(id, '/'), 0)], "").Leases++
			a.leases++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.owners = make([]owner, 0, len(owners))
	for _, one := range owners {
		a.owners = append(a.owners, *one)
	}
	slices.SortFunc(a.owners, func(a, b owner) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), strings.Compare(a.space, b.space),
			strings.Compare(a.Entity, b.Entity))
	})
	a.shares = make([]share, 0, len(by.all))
	for _, one := range by.all {
		a.shares = append(a.shares, *one)
	}
	slices.SortFunc(a.shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), strings.Compare(a.Mount, b.Mount),
			strings.Compare(a.Role, b.Role))
	})
	a.since, a.entities = o.past.grow(a), len(a.owners)
	a.owners = slices.Clone(a.owners[:min(len(a.owners), mostKept)])
	o.counted = a
	return a, nil
}

// madeWith walks over the index of leases by tokens beside a walk over the tokens. Both are in the order of the tokens'
// hashes, so a page of the index is all that it keeps.
type madeWith struct {
	records *sealed.Store
	atOnce  int // keys of a page
	page    []storage.Record
	from    string // where the page after this one begins
	done    bool   // there is none
}

// count is how many leases were made with a token. Each call is for a greater hash than the one before.
func (m *madeWith) count(ctx context.Context, hash string) (n int, err error) {
	own := token.LeasesOf + hash + "/"
	for end := storage.After(own); ; {
		for len(m.page) > 0 && m.page[0].Key < end {
			if m.page[0].Key >= own {
				n++
			}
			m.page = m.page[1:]
		}
		if len(m.page) > 0 || m.done {
			return n, nil
		}
		m.from = max(m.from, own) // leases of other tokens are not looked at where a page ends
		m.page, err = m.records.Under.Scan(ctx, m.from, storage.After(token.LeasesOf), m.atOnce)
		if err != nil {
			return 0, err
		}
		if m.done = len(m.page) < m.atOnce; len(m.page) > 0 {
			m.from = m.page[len(m.page)-1].Key + "\x00"
		}
	}
}

// eachToken calls each with every token that is stored, in the order of their hashes, until it fails. Damaged records
// are left out.
func (o *Census) eachToken(ctx context.Context, each func(*token.Token) error) error {
	for from := token.Records; ; {
		records, damaged, err := o.records.Barrier.Scan(ctx, from, storage.After(token.Records), sealed.ScanAtOnce)
		if err != nil || len(records)+len(damaged) == 0 {
			return err
		}
		for _, d := range damaged {
			from = max(from, d.Key+"\x00")
		}
		for _, r := range records {
			from = max(from, r.Key+"\x00")
			t, err := token.Decode(r)
			if err != nil {
				continue
			}
			if err := each(t); err != nil {
				return err
			}
		}
	}
}
