package keeper

import (
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
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
	l, err := s.k.findLease(c, id)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, errLeaseInvalid
	}
	var renewed any
	if !l.Renewed.IsZero() {
		renewed = l.Renewed.Format(time.RFC3339Nano)
	}
	return map[string]any{"id": l.ID, "issue_time": l.Issued.Format(time.RFC3339Nano), "expire_time": l.Expires.Format(time.RFC3339Nano), "last_renewal": renewed,
		"renewable": l.Renewable && !l.irrevocable(), "ttl": seconds(l.left(c.Now))}, nil
}

func (s *system) leaseList(c *sysCall) (any, error) {
	folder := strings.Trim(c.name, "/")
	if folder != "" {
		if err := storage.CheckKey(folder); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
		folder += "/"
	}
	names, err := s.k.vault.List(c, leasePrefix+folder, "", 0)
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
	l, capped, err := s.k.renewLease(c, c.task, id, increment)
	if err != nil {
		return nil, err
	}
	resp := &secrets.Response{}
	if capped {
		resp.Warnings = []string{"TTL is capped by the maximum that holds here"}
	}
	c.leased = &Leased{ID: l.ID, Left: l.left(c.Now), Renewable: l.Renewable}
	return resp, nil
}

func (s *system) leaseRevoke(c *sysCall) (any, error) {
	id, err := c.leaseID()
	if err != nil {
		return nil, err
	}
	return nil, s.k.revokeLease(c, c.st, id, false, time.Time{})
}

func (s *system) leaseRevokePrefix(c *sysCall) (any, error) { return nil, s.revokeBelow(c, false) }

func (s *system) leaseRevokeForce(c *sysCall) (any, error) { return nil, s.revokeBelow(c, true) }

// revokeBelow ends all leases below a path. Tokens of logins below it are not among them yet.
func (s *system) revokeBelow(c *sysCall, force bool) error {
	folder := strings.Trim(c.name, "/")
	if err := storage.CheckKey(folder); err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	prefix := leasePrefix + folder + "/"
	for from := prefix; ; {
		records, err := s.k.cfg.Storage.Scan(c, from, storage.After(prefix), dueAtOnce) // keys alone are read
		if err != nil || len(records) == 0 {
			return err
		}
		for _, r := range records {
			if err := s.k.revokeLease(c, c.st, strings.TrimPrefix(r.Key, leasePrefix), force, time.Time{}); err != nil {
				return err
			}
			from = r.Key + "\x00"
		}
	}
}

// leaseCount counts leases by the accessors of their mounts.
func (s *system) leaseCount(c *sysCall) (any, error) {
	irrevocable := c.f.String("type") == "irrevocable"
	counts, all := map[string]int{}, 0
	for from := leasePrefix; ; {
		records, _, err := s.k.barrier.Scan(c, from, storage.After(leasePrefix), 1000)
		if err != nil {
			return nil, err
		}
		if len(records) == 0 {
			return map[string]any{"lease_count": all, "counts": counts}, nil
		}
		for _, r := range records {
			from = r.Key + "\x00"
			if l, err := s.k.findLease(c, strings.TrimPrefix(r.Key, leasePrefix)); err == nil && l != nil && (!irrevocable || l.irrevocable()) {
				counts[l.Mount]++
				all++
			}
		}
	}
}
