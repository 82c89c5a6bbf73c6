package pki

import (
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/role"
	"corbel.dev/corbel/secrets/storage"
)

func (c *call) role(name string) (*role.Role, error) {
	r, ok, err := c.e.roles.Get(c, c.view, "roles/"+name, role.Parse)
	if err == nil && !ok {
		err = invalid("unknown role: %s", name)
	}
	if err != nil {
		return nil, err
	}
	return r.Expanded(c.r.Who), nil
}

// roles answers what is asked of roles.
type roles struct{ *call }

func (c roles) list() (*secrets.Response, error) {
	after, limit := c.f.String("after"), max(c.f.Int("limit", 0), 0)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	names, err := c.view.List(c, "roles/", after, limit)
	if err != nil {
		return nil, err
	}
	return keys(names)
}

func (c roles) read() (*secrets.Response, error) {
	r, ok, err := c.e.roles.Get(c, c.view, "roles/"+c.args[0], role.Parse)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errNotFound
	}
	return show(r.Params())
}

func (c roles) delete() (*secrets.Response, error) {
	return &secrets.Response{Ops: []secrets.Op{storage.Delete("roles/" + c.args[0])}}, nil
}

func (c roles) write() (*secrets.Response, error) {
	name := c.args[0]
	if err := storage.CheckKey("roles/" + name); err != nil {
		return nil, invalid("role name: %v", err)
	}
	r := role.New()
	if c.r.Op == secrets.Patch {
		raw, ok, err := c.view.Get(c, "roles/"+name)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, invalid("unknown role: %s", name)
		}
		if err := r.Params().Decode(raw); err != nil {
			return nil, err
		}
	}
	if err := r.Params().Read(c.f); err != nil {
		return nil, err
	}
	if err := r.Complete(); err != nil {
		return nil, err
	}
	if _, longest := c.e.cfg.TTLs(); r.MaxTTL > longest || r.TTL > longest {
		c.warn = append(c.warn, "ttl or max_ttl is longer than the mount allows ("+longest.String()+"), which will cap it")
	}
	if _, err := c.issuerBy(r.Issuer); err != nil {
		c.warn = append(c.warn, "issuer_ref: "+err.Error())
	}
	raw, err := r.Params().Encode()
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, storage.Put("roles/"+name, raw))
	return show(r.Params())
}
