package keeper

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// leaseID is the lease that a request names: in its body, else in its path.
func (c *sysCall) leaseID() (string, error) {
	id := c.f.String("lease_id")
	if id == "" {
		id = c.name
	}
	if id = strings.Trim(id, "/"); id == "" {
		return "", errLeaseInvalid
	}
	return id, c.f.Err()
}

func (s *system) leaseLookup(c *sysCall) (any, error) {
	id, err := c.leaseID()
	if err != nil {
		return nil, err
	}
	if tok, err := s.k.tokenOfLease(c, c.Tables, id, c.Now); err != nil || tok != nil {
		if err != nil {
			return nil, err
		}
		return leaseShown(id, tok.Created, tok.Expires, tok.Renewed, tok.Renewable, c.Now), nil
	}
	l, err := s.k.findLease(c, id)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, errLeaseInvalid
	}
	return leaseShown(l.ID, l.Issued, l.Expires, l.Renewed, l.Renewable && !l.irrevocable(), c.Now), nil
}

func leaseShown(id string, issued, expires, renewed time.Time, renewable bool, now time.Time) map[string]any {
	var last any
	if !renewed.IsZero() {
		last = renewed.Format(time.RFC3339Nano)
	}
	return map[string]any{"id": id, "issue_time": issued.Format(time.RFC3339Nano), "expire_time": expires.Format(time.RFC3339Nano), "last_renewal": last,
		"renewable": renewable, "ttl": task.Seconds(max(expires.Sub(now), 0))}
}

// tokenOfLease is the token that a lease id is of, or nil where it is no token's.
func (k *Keeper) tokenOfLease(ctx context.Context, st *tables.Tables, id string, now time.Time) (*token.Token, error) {
	hash, ok := token.OfLease(id)
	if !ok {
		return nil, nil
	}
	tok, err := st.Book.Find(ctx, hash)
	if err != nil || tok == nil || tok.LeaseID() != id || tok.Expired(now) {
		return nil, err
	}
	return tok, nil
}

func (s *system) leaseList(c *sysCall) (any, error) {
	folder := strings.Trim(c.name, "/")
	if folder != "" {
		if err := storage.CheckKey(folder); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
		folder += "/"
	}
	names, err := s.k.records.List(c, leasePrefix+folder, "", 0)
	if err == nil && len(names) == 0 {
		err = errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": names}, err
}

func (s *system) leaseRenew(c *sysCall) (any, error) {
	id, err := c.leaseID()
	if err != nil {
		return nil, err
	}
	increment := c.f.Duration("increment", 0)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	l, capped, err := s.k.renewLease(c, c.Task, id, increment)
	if err != nil {
		return nil, err
	}
	resp := &secrets.Response{}
	if capped {
		resp.Warnings = []string{"TTL is capped by the maximum that holds here"}
	}
	c.Left.Leased = &task.Leased{ID: l.ID, Left: l.left(c.Now), Renewable: l.Renewable}
	return resp, nil
}

// accepted is the answer to what is done later.
func accepted() *secrets.Response { return &secrets.Response{Status: http.StatusAccepted} }

func (s *system) leaseRevoke(c *sysCall) (any, error) {
	id, err := c.leaseID()
	if err != nil {
		return nil, err
	}
	sync := c.f.Bool("sync", true)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if tok, err := s.k.tokenOfLease(c, c.Tables, id, c.Now); err != nil || tok != nil {
		if err == nil {
			err = s.k.end(c, c.Tables, tok)
		}
		return nil, err
	}
	if sync {
		return nil, s.k.revokeLease(c, c.Tables, id, false, time.Time{})
	}
	return accepted(), s.k.endLeases(c, s.k.flying.Bulk(), c.Tables, []string{id})
}

func (s *system) leaseRevokePrefix(c *sysCall) (any, error) { return s.revokeBelow(c, false) }

func (s *system) leaseRevokeForce(c *sysCall) (any, error) { return s.revokeBelow(c, true) }

// revokeBelow ends all leases below a path, those of tokens too, now or later.
func (s *system) revokeBelow(c *sysCall, force bool) (any, error) {
	folder := strings.Trim(c.name, "/")
	if err := storage.CheckKey(folder); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	sync := c.f.Bool("sync", true)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if sync || force {
		return nil, s.k.revokePrefix(c, c.Tables, folder, force, false)
	}
	return accepted(), s.k.queuePrefix(c, folder)
}

// leaseCount counts leases by the accessors of their mounts.
func (s *system) leaseCount(c *sysCall) (any, error) {
	kind := c.f.String("type")
	if kind != "" && kind != "irrevocable" {
		return nil, errkind.New(errkind.Invalid, `field "type": must be irrevocable, or left out for all`)
	}
	counts, all := map[string]int{}, 0
	err := s.k.eachLease(c, func(id string) error {
		_, isToken := token.OfLease(id)
		if kind == "irrevocable" {
			l, err := s.k.findLease(c, id)
			if isToken || sealed.Damaged(err) || err == nil && (l == nil || !l.irrevocable()) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if e, _ := c.Tables.Mounts.Route(id); e != nil {
			counts[e.Accessor]++
		}
		all++
		return nil
	})
	return map[string]any{"lease_count": all, "counts": counts}, err
}

// eachLease calls each with the id of every lease. Only keys are read.
func (k *Keeper) eachLease(ctx context.Context, each func(id string) error) error {
	return k.records.EachKey(ctx, leasePrefix, each)
}

// irrevocableMost is how many irrevocable leases are listed where no limit is asked for.
const irrevocableMost = 10_000

var errEnough = errors.New("enough")

// leasesIrrevocable lists what nobody could revoke, with the last error of each.
func (s *system) leasesIrrevocable(c *sysCall) (any, error) {
	if c.f.String("type") != "irrevocable" {
		return nil, errkind.New(errkind.Invalid, `field "type": must be irrevocable`)
	}
	limit := irrevocableMost
	if c.f.String("limit") == "none" {
		limit = 0
	} else if limit = c.f.Int("limit", limit); limit < 1 {
		return nil, errkind.New(errkind.Invalid, `field "limit": must be a number above 0, or none`)
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	list := []map[string]string{}
	err := s.k.eachLease(c, func(id string) error {
		if _, isToken := token.OfLease(id); isToken {
			return nil
		}
		l, err := s.k.findLease(c, id)
		switch {
		case sealed.Damaged(err) || err == nil && (l == nil || !l.irrevocable()):
			return nil
		case err != nil:
			return err
		}
		if list = append(list, map[string]string{"lease_id": id, "error": l.Error}); len(list) == limit {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return map[string]any{"lease_count": len(list), "leases": list}, nil
}
