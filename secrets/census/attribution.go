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
	shown := a.shares[:min(limit, len(a.shares))]
	return map[string]any{"tokens": a.tokens, "leases": a.leases, "as_of": a.at.UTC().Format(time.RFC3339),
		"roles": len(a.shares), "by_role": shown}, nil
}

// attribute counts the live tokens and leases, or gives a count that is not old.
func (o *Census) attribute(ctx context.Context, st *tables.Tables, now time.Time) (*attributed, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a := o.counted; a != nil && now.Sub(a.at) >= 0 && now.Sub(a.at) < attributionAge {
		return a, nil
	}
	a, by := &attributed{at: now}, map[[2]string]*share{}
	of := func(path, role string) *share {
		in, e, rest := st.Route(path) // a mount's path is from the root: it names its namespace
		if e == nil {
			e = &mount.Entry{}
		}
		if role == "" {
			role = rest
		}
		at := in.Path() + e.Path
		one := by[[2]string{at, role}]
		if one == nil {
			one = &share{Mount: at, Type: e.Type, Role: role}
			by[[2]string{at, role}] = one
		}
		return one
	}
	err := o.eachToken(ctx, func(t *token.Token) {
		if !t.Expired(now) {
			of(t.Path, t.Role).Tokens++
			a.tokens++
		}
	})
	if err != nil {
		return nil, err
	}
	err = o.records.EachKey(ctx, token.LeasePrefix, func(id string) error {
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
		return cmp.Or(cmp.Compare(b.Tokens+b.Leases, a.Tokens+a.Leases), strings.Compare(a.Mount, b.Mount),
			strings.Compare(a.Role, b.Role))
	})
	o.counted = a
	return a, nil
}

// eachToken calls each with every token that is stored. Damaged records are left out.
func (o *Census) eachToken(ctx context.Context, each func(*token.Token)) error {
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
			if t, err := token.Decode(r); err == nil {
				each(t)
			}
		}
	}
}
