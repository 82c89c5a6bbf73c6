package ssh

import (
	"context"
	"net/netip"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
	"github.com/google/uuid"
)

// pass is what is stored of a one-time password, by its hash.
type pass struct {
	Role string `json:"role"`
	User string `json:"username"`
	IP   string `json:"ip"`
}

// creds makes a one-time password for a host.
func (c *call) creds() (*secrets.Response, error) {
	r, err := c.role()
	if err != nil {
		return nil, err
	}
	if r.Type != typeOTP {
		return nil, invalid("key type unknown: the role makes no one-time passwords")
	}
	addr, err := netip.ParseAddr(c.f.String("ip"))
	if err != nil {
		return nil, invalid("invalid IP '%s'", c.f.String("ip"))
	}
	user := c.f.String("username")
	if user == "" {
		user = r.Default
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	switch {
	case user != r.Default && !slices.Contains(r.Allowed, user) && !slices.Contains(r.Allowed, "*"):
		return nil, invalid("username is not present is allowed users list")
	case !r.covers(addr):
		return nil, invalid("IP %s does not belong to role", addr)
	}
	password := uuid.NewString()
	key := "otp/" + c.e.Hash(password)
	if err := c.put(key, pass{c.name, user, addr.String()}); err != nil {
		return nil, err
	}
	resp, err := answer(map[string]any{"key_type": typeOTP, "key": password, "username": user, "ip": addr.String(),
		"port": r.Port})
	if err != nil {
		return nil, err
	}
	standard, longest := c.e.TTLs()
	resp.Lease = &secrets.Lease{TTL: standard, MaxTTL: longest, Internal: []byte(key)}
	return resp, nil
}

// covers reports whether the role is for an address.
func (r *Role) covers(addr netip.Addr) bool {
	within := func(list []string) bool {
		return slices.ContainsFunc(list, func(text string) bool {
			p, err := netip.ParsePrefix(text)
			return err == nil && p.Contains(addr.Unmap())
		})
	}
	return within(r.CIDRs) && !within(r.Except)
}

// verifyEcho is what a host's helper asks to see whether the mount answers.
const verifyEcho = "verify-echo-request"

// verify tells a host whom a password lets in, once.
func (c *call) verify() (*secrets.Response, error) {
	password := c.f.String("otp")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if password == verifyEcho {
		return answer(map[string]any{"message": "verify-echo-response"})
	}
	if _, err := uuid.Parse(password); err != nil {
		return nil, invalid("OTP not found")
	}
	key := "otp/" + c.e.Hash(password)
	raw, ok, err := c.view.Get(c, key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, invalid("OTP not found")
	}
	p, err := record.ReadJSON[pass](raw)
	if err != nil {
		return nil, err
	}
	resp, err := answer(map[string]any{"username": p.User, "ip": p.IP, "role_name": p.Role})
	c.ops = append(c.ops, secrets.Op{Key: key})
	return resp, err
}

// lookup lists the roles that are for an address.
func (c *call) lookup() (*secrets.Response, error) {
	addr, err := netip.ParseAddr(c.f.String("ip"))
	if err != nil {
		return nil, invalid("invalid IP '%s'", c.f.String("ip"))
	}
	list := []string{}
	for after := ""; ; {
		names, err := c.view.List(c, "role/", after, lookupPage)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			r, ok, err := c.e.roles.Get(c, c.view, "role/"+name, decodeRole)
			if err != nil {
				return nil, err
			}
			if ok && r.Type == typeOTP && r.covers(addr) {
				list = append(list, name)
			}
			after = name
		}
		if len(names) < lookupPage {
			return answer(map[string]any{"roles": list})
		}
	}
}

const lookupPage = 1000

// Renew implements engine.Leaser: a password lives as long as it was given.
func (*Engine) Renew(context.Context, engine.View, engine.Lease) (*secrets.Response, error) {
	return nil, errkind.New(errkind.Invalid, "a one-time password is not renewable")
}

// Revoke implements engine.Leaser: a password that was verified is gone already.
func (*Engine) Revoke(_ context.Context, _ engine.View, l engine.Lease) (*secrets.Response, error) {
	return &secrets.Response{Ops: []secrets.Op{{Key: string(l.Internal)}}}, nil
}
