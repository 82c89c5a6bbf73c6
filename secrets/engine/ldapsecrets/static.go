package ldapsecrets

import (
	"context"
	"strings"
	"time"

	client "github.com/go-ldap/ldap/v3"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/directory"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/storage"
)

// static is an account of the directory's own whose password is ours, under "static-role/<name>".
type static struct {
	User     string        `json:"username"`
	DN       string        `json:"dn,omitempty"` // "": it is searched each time
	Every    time.Duration `json:"rotation_period"`
	Password string        `json:"password,omitempty"`
	Former   string        `json:"last_password,omitempty"`
	Pending  string        `json:"pending,omitempty"`
	Last     time.Time     `json:"last_rotation,omitzero"`
	Next     time.Time     `json:"next_rotation,omitzero"`
}

const rotatePrefix = "rotate/"

func (c *call) static() (*static, error) {
	return elsewhere.Find[static](c, c.view, "static-role/"+c.name)
}

// stamp is a time as the API shows it; nil: never.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Format(time.RFC3339Nano)
}

func (c *call) readStatic() (*secrets.Response, error) {
	s, err := c.static()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, elsewhere.ErrNotFound
	}
	return elsewhere.Answer(map[string]any{"username": s.User, "dn": s.DN, "rotation_period": seconds(s.Every),
		"last_vault_rotation": stamp(s.Last)})
}

func (c *call) staticCred() (*secrets.Response, error) {
	s, err := c.static()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, elsewhere.Invalid("unknown role: %s", c.name)
	}
	return elsewhere.Answer(map[string]any{"username": s.User, "dn": s.DN, "password": s.Password,
		"last_password": s.Former, "rotation_period": seconds(s.Every), "last_vault_rotation": stamp(s.Last),
		"ttl": seconds(max(s.Next.Sub(c.r.Now), 0))})
}

func (c *call) writeStatic() (*secrets.Response, error) {
	s, isNew := &static{}, true
	if have, err := c.static(); err != nil {
		return nil, err
	} else if have != nil {
		*s, isNew = *have, false
	}
	was := s.Next
	user, dn := c.f.String("username"), c.f.String("dn")
	s.Every = c.f.Duration("rotation_period", s.Every)
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	skip := c.f.Bool("skip_import_rotation", cfg.NoImport)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	switch {
	case isNew && user == "":
		return nil, elsewhere.Invalid("field \"username\": is required to create a static role")
	case !isNew && user != "" && user != s.User:
		return nil, elsewhere.Invalid("field \"username\": cannot be changed: delete the role first")
	case !isNew && dn != "" && dn != s.DN:
		return nil, elsewhere.Invalid("field \"dn\": cannot be changed: delete the role first")
	case s.Every < 5*time.Second:
		return nil, elsewhere.Invalid("field \"rotation_period\": must be 5 seconds or more")
	}
	if !isNew {
		switch {
		case s.Pending != "": // a crash left it: when it is looked at stays
		case s.Last.IsZero():
			s.Next = c.r.Now.UTC().Add(s.Every)
		default:
			s.Next = s.Last.Add(s.Every)
		}
		return c.save(s, was)
	}
	if dn != "" {
		if _, err := client.ParseDN(dn); err != nil {
			return nil, elsewhere.Invalid("field \"dn\": %q is no DN", dn)
		}
	}
	s.User, s.DN = user, dn
	owner := "static-role/" + c.name
	if _, err := c.claim(user, owner); err != nil {
		return nil, err
	}
	err = c.do(c, cfg, func(at *directory.Session) error { return cfg.there(at, s) })
	if err != nil {
		return nil, err
	}
	var resp *secrets.Response
	if skip {
		s.Next = c.r.Now.UTC().Add(s.Every)
		resp, err = c.save(s, was)
	} else {
		resp, err = c.change(cfg, s, was)
	}
	if err != nil {
		return nil, err
	}
	claim, err := elsewhere.Put(accountKey(user), account{Owner: owner, User: user})
	resp.Ops = append(resp.Ops, claim)
	return resp, err
}

// there looks whether the account of a role is.
func (c *config) there(at *directory.Session, s *static) error {
	if s.DN == "" {
		_, err := c.find(at, s.User)
		return err
	}
	_, err := at.Conn.Search(&client.SearchRequest{BaseDN: s.DN, Scope: client.ScopeBaseObject,
		TimeLimit: at.Seconds(), Filter: "(objectClass=*)", Attributes: []string{"1.1"}})
	if client.IsErrorWithCode(err, client.LDAPResultNoSuchObject) {
		return elsewhere.Invalid("field \"dn\": the directory has no entry %s", s.DN)
	}
	if err != nil {
		return directory.Judged("reading "+s.DN, err)
	}
	return nil
}

// save stores a role, with its entry in the index of rotations.
func (c *call) save(s *static, was time.Time) (*secrets.Response, error) {
	resp, err := elsewhere.Store("static-role/"+c.name, s)
	if err != nil {
		return nil, err
	}
	if !was.IsZero() && !was.Equal(s.Next) {
		resp.Ops = append(resp.Ops, storage.Delete(elsewhere.DueKey(rotatePrefix, was, c.name)))
	}
	resp.Ops = append(resp.Ops, storage.Put(elsewhere.DueKey(rotatePrefix, s.Next, c.name), nil))
	return resp, nil
}

// change sets a new password: stored as pending, set, stored. What a crash leaves pending is found by the entry that
// is stored with it: where the directory has taken it already it counts, else another is set.
func (c *call) change(cfg *config, s *static, was time.Time) (*secrets.Response, error) {
	former := s.Pending
	var err error
	if s.Pending, err = c.password(cfg); err != nil {
		return nil, err
	}
	if former != "" && c.taken(cfg, s, former) {
		s.Pending = former
		return c.settled(s, was)
	}
	s.Next = c.r.Now.UTC().Add(elsewhere.Wait)
	resp, err := c.save(s, was)
	if err != nil {
		return nil, err
	}
	resp.Then = elsewhere.Step(func(ctx context.Context) (*secrets.Response, error) {
		err := c.do(ctx, cfg, func(at *directory.Session) (err error) {
			dn := s.DN
			if dn == "" {
				if dn, err = cfg.find(at, s.User); err != nil {
					return err
				}
			}
			return cfg.set(at, dn, s.Pending)
		})
		if err != nil {
			return nil, err
		}
		return c.settled(s, s.Next)
	})
	return resp, nil
}

// settled stores that the pending password counts.
func (c *call) settled(s *static, was time.Time) (*secrets.Response, error) {
	done := *s
	now := c.r.Now.UTC()
	done.Former, done.Password, done.Pending, done.Last, done.Next = s.Password, s.Pending, "", now, now.Add(s.Every)
	return c.save(&done, was)
}

// taken reports whether an account has a password already; where that cannot be told, it has not.
func (c *call) taken(cfg *config, s *static, password string) bool {
	return c.do(c, cfg, func(at *directory.Session) (err error) {
		dn := s.DN
		if dn == "" {
			if dn, err = cfg.find(at, s.User); err != nil {
				return err
			}
		}
		return at.Conn.Bind(dn, password)
	}) == nil
}

// rotateStatic changes the password now, or by the clock.
func (c *call) rotateStatic() (*secrets.Response, error) {
	have, err := c.static()
	if err != nil {
		return nil, err
	}
	if have == nil || (c.r.Due && have.Next.After(c.r.Now)) {
		if c.r.Due { // it went, or was changed meanwhile: the entry is a remnant
			return &secrets.Response{Ops: []secrets.Op{storage.Delete(c.f.String("entry"))}}, nil
		}
		return nil, elsewhere.Invalid("role %q doesn't exist", c.name)
	}
	s := *have
	cfg, err := c.config()
	if err != nil && c.r.Due && errkind.Is(err, errkind.Invalid) { // there is none: later
		s.Next = c.r.Now.UTC().Add(elsewhere.Wait)
		return c.save(&s, have.Next)
	}
	if err != nil {
		return nil, err
	}
	return c.change(cfg, &s, have.Next)
}

func (c *call) deleteStatic() (*secrets.Response, error) {
	s, err := c.static()
	if err != nil || s == nil {
		return &secrets.Response{}, err
	}
	return &secrets.Response{Ops: []secrets.Op{storage.Delete(strings.TrimSuffix(c.r.Rest, "/")),
		storage.Delete(accountKey(s.User)), storage.Delete(elsewhere.DueKey(rotatePrefix, s.Next, c.name))}}, nil
}
