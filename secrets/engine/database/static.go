package database

import (
	"context"
	"fmt"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// static is a role of the database's own whose password is ours, under "static-roles/<name>".
type static struct {
	DB       string        `json:"db_name"`
	User     string        `json:"username"`
	Every    time.Duration `json:"rotation_period"`
	Rotate   []string      `json:"rotation_statements,omitempty"`
	Password string        `json:"password,omitempty"`
	Pending  string        `json:"pending,omitempty"`
	Last     time.Time     `json:"last_rotation,omitzero"`
	Next     time.Time     `json:"next_rotation,omitzero"`
}

const rotatePrefix = "rotate/"

// dueKey is an entry of an index in the order of time.
func dueKey(prefix string, at time.Time, name string) string {
	return fmt.Sprintf("%s%020d/%s", prefix, max(at.UnixNano(), 0), name)
}

func (c *call) static() (*static, error) {
	s, ok, err := c.e.statics.Get(c, c.view, "static-roles/"+c.name, record.ReadJSON[static])
	if err != nil || !ok {
		return nil, err
	}
	return s, nil
}

func (c *call) readStatic() (*secrets.Response, error) {
	s, err := c.static()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errNotFound
	}
	return answer(map[string]any{"db_name": s.DB, "username": s.User, "rotation_period": int64(s.Every / time.Second),
		"rotation_statements": listed(s.Rotate),
		"last_vault_rotation": s.Last.Format(time.RFC3339Nano), "credential_type": "password"})
}

func (c *call) staticCreds() (*secrets.Response, error) {
	s, err := c.static()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, invalid("unknown role: %s", c.name)
	}
	return answer(map[string]any{"username": s.User, "password": s.Password,
		"rotation_period":     int64(s.Every / time.Second),
		"last_vault_rotation": s.Last.Format(time.RFC3339Nano), "ttl": int64(max(s.Next.Sub(c.r.Now), 0) / time.Second)})
}

func (c *call) writeStatic() (*secrets.Response, error) {
	s, isNew := &static{}, true
	if have, err := c.static(); err != nil {
		return nil, err
	} else if have != nil {
		*s, isNew = *have, false
	}
	was := s.Next
	user := c.f.String("username")
	if c.f.Has("db_name") {
		s.DB = c.f.String("db_name")
	}
	s.Every = c.f.Duration("rotation_period", s.Every)
	statements(c.f, "rotation_statements", &s.Rotate)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	switch {
	case isNew && user == "":
		return nil, invalid("username is a required field to create a static account")
	case !isNew && user != "" && user != s.User:
		return nil, invalid("cannot update static account username")
	case s.Every < 5*time.Second:
		return nil, invalid("rotation_period must be 5 seconds or more")
	}
	if isNew {
		s.User = user
	}
	cfg, err := c.config(s.DB)
	if err != nil {
		return nil, err
	}
	if !cfg.allowed(c.name) {
		return nil, invalid("%q is not an allowed role", c.name)
	}
	if isNew {
		err := c.e.links.do(c, cfg, func(ctx context.Context, l *link) error {
			is, err := l.exists(ctx, s.User)
			if err == nil && !is {
				err = invalid("the database %s has no role %q", s.DB, s.User)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		return c.change(cfg, s, was)
	}
	if s.Pending == "" { // what a crash left is looked at when it was to be
		s.Next = s.Last.Add(s.Every)
	}
	return c.save(s, was)
}

// save stores a role, with its entry in the index of rotations.
func (c *call) save(s *static, was time.Time) (*secrets.Response, error) {
	resp, err := store("static-roles/"+c.name, s)
	if err != nil {
		return nil, err
	}
	if !was.IsZero() && !was.Equal(s.Next) {
		resp.Ops = append(resp.Ops, storage.Delete(dueKey(rotatePrefix, was, c.name)))
	}
	resp.Ops = append(resp.Ops, storage.Put(dueKey(rotatePrefix, s.Next, c.name), nil))
	return resp, nil
}

// change sets a new password: stored as pending, set, stored. What a crash leaves pending is set anew,
// by the entry that is stored with it.
func (c *call) change(cfg *config, s *static, was time.Time) (*secrets.Response, error) {
	var err error
	if s.Pending, err = c.password(cfg); err != nil {
		return nil, err
	}
	s.Next = c.r.Now.UTC().Add(walWait)
	resp, err := c.save(s, was)
	if err != nil {
		return nil, err
	}
	resp.Then = step(func(ctx context.Context) (*secrets.Response, error) {
		stored, err := cfg.stored(s.Pending)
		if err != nil {
			return nil, err
		}
		err = c.e.ask(ctx, updates, cfg, func(ctx context.Context, l *link) error {
			return l.setPassword(ctx, s.Rotate, values{user: s.User, password: stored})
		})
		if err != nil {
			return nil, err
		}
		done, was := *s, s.Next
		done.Password, done.Pending, done.Last, done.Next = s.Pending, "", c.r.Now.UTC(), c.r.Now.UTC().Add(s.Every)
		return c.save(&done, was)
	})
	return resp, nil
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
		return nil, invalid("no static role found for role name: %s", c.name)
	}
	cfg, err := c.config(have.DB)
	if err != nil {
		return nil, err
	}
	s := *have
	return c.change(cfg, &s, have.Next)
}

func (c *call) deleteStatic() (*secrets.Response, error) {
	s, err := c.static()
	if err != nil || s == nil {
		return &secrets.Response{}, err
	}
	return &secrets.Response{Ops: []secrets.Op{storage.Delete(c.r.Rest),
		storage.Delete(dueKey(rotatePrefix, s.Next, c.name))}}, nil
}
