package leases

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/secrets/tokens"
)

// paths answers sys/leases and the older paths of the same.
type paths struct{ *Leases }

// Rows are the paths of sys/ that it answers.
func (l *Leases) Rows() []system.Row {
	o := paths{l}
	return []system.Row{
		{Path: "leases/lookup", InNamespaces: true, Write: o.leaseLookup, List: o.leaseList},
		{Path: "leases/lookup/", InNamespaces: true, Write: o.leaseLookup, List: o.leaseList},
		{Path: "leases/renew", InNamespaces: true, Write: o.leaseRenew},
		{Path: "leases/renew/", InNamespaces: true, Write: o.leaseRenew},
		{Path: "leases/revoke", InNamespaces: true, Write: o.leaseRevoke},
		{Path: "leases/revoke/", InNamespaces: true, Write: o.leaseRevoke},
		{Path: "leases/revoke-prefix/", InNamespaces: true, Write: o.leaseRevokePrefix},
		{Path: "leases/revoke-force/", InNamespaces: true, Write: o.leaseRevokeForce},
		{Path: "leases/count", InNamespaces: true, Read: o.leaseCount},
		{Path: "leases", InNamespaces: true, Read: o.leasesIrrevocable},
		{Path: "leases/revocation", Read: o.revocation},
		{Path: "leases/revocation/pause", Write: o.revocationPause},
		{Path: "leases/revocation/resume", Write: o.revocationResume},
		{Path: "renew", InNamespaces: true, Write: o.leaseRenew},
		{Path: "renew/", InNamespaces: true, Write: o.leaseRenew},
		{Path: "revoke", InNamespaces: true, Write: o.leaseRevoke},
		{Path: "revoke/", InNamespaces: true, Write: o.leaseRevoke},
		{Path: "revoke-prefix/", InNamespaces: true, Write: o.leaseRevokePrefix},
		{Path: "revoke-force/", InNamespaces: true, Write: o.leaseRevokeForce},
		{Path: "leases/tidy", InNamespaces: true, Write: o.tidyLeases},
	}
}

// leaseID is the lease that a request names, from the root: in its body, else in its path.
func leaseID(c *system.Call) (string, error) {
	id := c.F.String("lease_id")
	if id == "" {
		id = c.Name
	}
	if id = strings.Trim(id, "/"); id == "" {
		return "", errLeaseInvalid
	}
	return stored(c.Tables, id), c.F.Err()
}

func (o paths) leaseLookup(c *system.Call) (any, error) {
	id, err := leaseID(c)
	if err != nil {
		return nil, err
	}
	if tok, err := o.tokens.TokenOfLease(c, c.Tables, id, c.Now); err != nil || tok != nil {
		if err != nil {
			return nil, err
		}
		return leaseShown(shown(c.Tables, id), tok.Created, tok.Expires, tok.Renewed, tok.Renewable, c.Now), nil
	}
	l, err := o.findLease(c, id)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, errLeaseInvalid
	}
	return leaseShown(shown(c.Tables, l.ID), l.Issued, l.Expires, l.Renewed, l.Renewable && !l.irrevocable(), c.Now), nil
}

func leaseShown(id string, issued, expires, renewed time.Time, renewable bool, now time.Time) map[string]any {
	var last any
	if !renewed.IsZero() {
		last = renewed.Format(time.RFC3339Nano)
	}
	return map[string]any{"id": id, "issue_time": issued.Format(time.RFC3339Nano),
		"expire_time": expires.Format(time.RFC3339Nano), "last_renewal": last,
		"renewable": renewable, "ttl": task.Seconds(max(expires.Sub(now), 0))}
}

func (o paths) leaseList(c *system.Call) (any, error) {
	folder := strings.Trim(c.Name, "/")
	if folder != "" {
		if err := storage.CheckKey(folder); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
		folder += "/"
	}
	names, err := o.records.List(c, leasePrefix+c.Tables.Path()+folder, "", 0)
	if err == nil && len(names) == 0 {
		err = errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": names}, err
}

func (o paths) leaseRenew(c *system.Call) (any, error) {
	id, err := leaseID(c)
	if err != nil {
		return nil, err
	}
	increment := c.F.Duration("increment", 0)
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	l, capped, err := o.renewLease(c, c.Task, id, increment)
	if err != nil {
		return nil, err
	}
	resp := &secrets.Response{}
	if capped {
		resp.Warnings = []string{"TTL is capped by the maximum that holds here"}
	}
	c.Left.Leased = &task.Leased{ID: shown(c.Tables, l.ID), Left: l.left(c.Now), Renewable: l.Renewable}
	return resp, nil
}

// accepted is the answer to what is done later.
func accepted() *secrets.Response { return &secrets.Response{Status: http.StatusAccepted} }

func (o paths) leaseRevoke(c *system.Call) (any, error) {
	id, err := leaseID(c)
	if err != nil {
		return nil, err
	}
	sync := c.F.Bool("sync", true)
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if tok, err := o.tokens.TokenOfLease(c, c.Tables, id, c.Now); err != nil || tok != nil {
		if err == nil {
			err = o.tokens.End(c, c.Tables, tok)
		}
		return nil, err
	}
	if sync {
		return nil, o.revokeLease(c, c.Tables, id, false, time.Time{})
	}
	return accepted(), o.endLeases(c, o.flying.Bulk(), c.Tables, []string{id})
}

func (o paths) leaseRevokePrefix(c *system.Call) (any, error) { return o.revokeBelow(c, false) }

func (o paths) leaseRevokeForce(c *system.Call) (any, error) { return o.revokeBelow(c, true) }

// revokeBelow ends all leases below a path, those of tokens too, now or later.
func (o paths) revokeBelow(c *system.Call, force bool) (any, error) {
	folder := strings.Trim(c.Name, "/")
	if err := storage.CheckKey(folder); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	folder = c.Tables.Path() + folder
	sync := c.F.Bool("sync", true)
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if sync || force {
		return nil, o.revokePrefix(c, c.Tables, folder, force, false)
	}
	return accepted(), o.queuePrefix(c, folder)
}

// each gives the ids of the leases of the request's namespace, and of those below it where they are wanted too.
func (o paths) each(c *system.Call, below bool, take func(id string) error) error {
	at := c.Tables.Path()
	return o.records.EachKey(c, leasePrefix+at, func(id string) error {
		if !below && token.SpaceOf(id) != c.Tables.TokenSpace() {
			return nil
		}
		return take(at + id)
	})
}

// leaseCount counts leases by the accessors of their mounts.
func (o paths) leaseCount(c *system.Call) (any, error) {
	kind := c.F.String("type")
	if kind != "" && kind != "irrevocable" {
		return nil, errkind.New(errkind.Invalid, `field "type": must be irrevocable, or left out for all`)
	}
	counts, all, below := map[string]int{}, 0, c.F.Bool("include_child_namespaces", false)
	err := o.each(c, below, func(id string) error {
		_, isToken := token.OfLease(id)
		if kind == "irrevocable" {
			l, err := o.findLease(c, id)
			if isToken || sealed.Damaged(err) || err == nil && (l == nil || !l.irrevocable()) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if _, e, _ := c.Tables.Route(id); e != nil {
			counts[e.Accessor]++
		}
		all++
		return nil
	})
	return map[string]any{"lease_count": all, "counts": counts}, err
}

// irrevocableMost is how many irrevocable leases are listed where no limit is asked for.
const irrevocableMost = 10_000

var errEnough = errors.New("enough")

// leasesIrrevocable lists what nobody could revoke, with the last error of each.
func (o paths) leasesIrrevocable(c *system.Call) (any, error) {
	if c.F.String("type") != "irrevocable" {
		return nil, errkind.New(errkind.Invalid, `field "type": must be irrevocable`)
	}
	limit := irrevocableMost
	if c.F.String("limit") == "none" {
		limit = 0
	} else if limit = c.F.Int("limit", limit); limit < 1 {
		return nil, errkind.New(errkind.Invalid, `field "limit": must be a number above 0, or none`)
	}
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	list := []map[string]string{}
	err := o.each(c, c.F.Bool("include_child_namespaces", false), func(id string) error {
		if _, isToken := token.OfLease(id); isToken {
			return nil
		}
		l, err := o.findLease(c, id)
		switch {
		case sealed.Damaged(err) || err == nil && (l == nil || !l.irrevocable()):
			return nil
		case err != nil:
			return err
		}
		if list = append(list, map[string]string{"lease_id": shown(c.Tables, id), "error": l.Error}); len(list) == limit {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return map[string]any{"lease_count": len(list), "leases": list}, nil
}

// tidyLeases is there for operators' scripts: nothing is left behind that it would have to look for.
func (o paths) tidyLeases(*system.Call) (any, error) {
	return tokens.Tidied(), nil
}
