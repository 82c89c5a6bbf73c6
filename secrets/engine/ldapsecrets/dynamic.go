package ldapsecrets

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/directory"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/engine/naming"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// dynamic is a dynamic role, under "role/<name>".
type dynamic struct {
	Creation string        `json:"creation_ldif"`
	Deletion string        `json:"deletion_ldif"`
	Rollback string        `json:"rollback_ldif,omitempty"`
	Template string        `json:"username_template,omitempty"`
	TTL      time.Duration `json:"default_ttl,omitempty"`
	MaxTTL   time.Duration `json:"max_ttl,omitempty"`
}

const (
	walPrefix       = "wal/"
	userTemplate    = `v_{{.DisplayName}}_{{.RoleName}}_{{random 10}}_{{unix_time}}`
	userMost        = 256
	userUnfit       = ",+\"\\<>;=#/*()\x00\r\n "
	ldifBytes       = 64 << 10
	ldifTimeOfIssue = "20060102150405Z" // generalized time
)

func (d *dynamic) params() record.Params {
	return record.Params{{Name: "creation_ldif", At: &d.Creation}, {Name: "deletion_ldif", At: &d.Deletion},
		{Name: "rollback_ldif", At: &d.Rollback}, {Name: "username_template", At: &d.Template},
		{Name: "default_ttl", At: &d.TTL}, {Name: "max_ttl", At: &d.MaxTTL}}
}

func (c *call) role() (*dynamic, error) {
	return elsewhere.Find[dynamic](c, c.view, "role/"+c.name)
}

func (c *call) readRole() (*secrets.Response, error) {
	d, err := c.role()
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, elsewhere.ErrNotFound
	}
	out := map[string]any{}
	d.params().Show(out)
	return elsewhere.Answer(out)
}

func (c *call) writeRole() (*secrets.Response, error) {
	d, err := c.role()
	if err != nil {
		return nil, err
	}
	if d == nil {
		d = &dynamic{}
	}
	if err := d.params().Read(c.f); err != nil {
		return nil, err
	}
	switch {
	case d.Creation == "":
		return nil, elsewhere.Invalid("field \"creation_ldif\": is missing")
	case d.Deletion == "":
		return nil, elsewhere.Invalid("field \"deletion_ldif\": is missing")
	case d.MaxTTL > 0 && d.TTL > d.MaxTTL:
		return nil, elsewhere.Invalid("field \"default_ttl\": is greater than max_ttl")
	}
	for _, at := range []*string{&d.Creation, &d.Deletion, &d.Rollback} {
		*at = plainText(*at)
	}
	if _, _, err := c.fill(d, "x"); err != nil { // with a name as one that a caller would get
		return nil, err
	}
	return elsewhere.Store("role/"+c.name, d)
}

// plainText is an LDIF that may have come in base64.
func plainText(text string) string {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || !strings.Contains(string(raw), "dn:") {
		return text
	}
	return string(raw)
}

// live is what a lease, or an entry of what may have been made, knows.
type live struct {
	User string `json:"user"`
	End  string `json:"end"` // LDIF, filled in
	Undo string `json:"undo,omitempty"`
	// Tries is how often it failed to end.
	Tries int `json:"tries,omitempty"`
}

// fill makes a user's name, and fills in what makes and ends it.
func (c *call) fill(d *dynamic, password string) (making []change, of *live, err error) {
	text := d.Template
	if text == "" {
		text = userTemplate
	}
	t, err := naming.Parse("username_template", text, c.r.Now, nil)
	if err != nil {
		return nil, nil, elsewhere.Invalid("field \"username_template\": %v", err)
	}
	holder, role := naming.Plain(c.r.Holder), naming.Plain(c.name)
	user, err := t.Make(holder, role, naming.Rules{Most: userMost, Unfit: userUnfit})
	if err != nil {
		return nil, nil, elsewhere.Invalid("field \"username_template\": %v", err)
	}
	ttl, _ := elsewhere.Lifetimes(c.e.TTLs, d.TTL, d.MaxTTL)
	now := c.r.Now.UTC()
	data := map[string]string{"Username": user, "Password": password, "DisplayName": holder, "RoleName": role,
		"IssueTime": now.Format(ldifTimeOfIssue), "IssueTimeSeconds": fmt.Sprint(now.Unix()),
		"ExpirationTime": now.Add(ttl).Format(ldifTimeOfIssue), "ExpirationTimeSeconds": fmt.Sprint(now.Add(ttl).Unix())}
	of = &live{User: user}
	for _, one := range []struct {
		name, text string
		filled     *string
		list       *[]change
	}{{"creation_ldif", d.Creation, new(string), &making}, {"deletion_ldif", d.Deletion, &of.End, new([]change)},
		{"rollback_ldif", d.Rollback, &of.Undo, new([]change)}} {
		if one.text == "" {
			continue
		}
		if *one.filled, *one.list, err = filled(one.name, one.text, c.r.Now, data); err != nil {
			return nil, nil, elsewhere.Invalid("field %q: %v", one.name, err)
		}
	}
	return making, of, nil
}

func filled(name, text string, now time.Time, data map[string]string) (string, []change, error) {
	if len(text) > ldifBytes {
		return "", nil, fmt.Errorf("must be at most %d bytes", ldifBytes)
	}
	t, err := naming.Parse(name, text, now, template.FuncMap{"utf16le": utf16le})
	if err != nil {
		return "", nil, err
	}
	if text, err = t.Text(data); err != nil {
		return "", nil, err
	}
	list, err := parseLDIF(text)
	return text, list, err
}

// creds makes entries for whoever asks.
func (c *call) creds() (*secrets.Response, error) {
	d, err := c.role()
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, elsewhere.Invalid("unknown role: %s", c.name)
	}
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	password, err := c.password(cfg)
	if err != nil {
		return nil, err
	}
	making, of, err := c.fill(d, password)
	if err != nil {
		return nil, err
	}
	entry := elsewhere.DueKey(walPrefix, c.r.Now.Add(elsewhere.Wait), of.User)
	resp, err := elsewhere.Store(entry, of)
	if err != nil {
		return nil, err
	}
	resp.Then = elsewhere.Step(func(ctx context.Context) (*secrets.Response, error) {
		var names []string
		err := c.do(ctx, cfg, func(s *directory.Session) error {
			for i := range making {
				if err := making[i].apply(s.Conn, false); err != nil {
					err = refused("creation_ldif: "+making[i].dn, err)
					return errors.Join(err, of.undo(s)) // the entry stays, and tries that again
				}
				names = append(names, making[i].dn)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		internal, err := json.Marshal(live{User: of.User, End: of.End})
		if err != nil {
			return nil, err
		}
		out, err := elsewhere.Answer(map[string]any{"username": of.User, "password": password,
			"distinguished_names": names})
		if err != nil {
			return nil, err
		}
		ttl, longest := elsewhere.Lifetimes(c.e.TTLs, d.TTL, d.MaxTTL)
		out.Ops = []secrets.Op{storage.Delete(entry)}
		out.Lease = &secrets.Lease{TTL: ttl, MaxTTL: longest, Renewable: true, Internal: internal}
		return out, nil
	})
	return resp, nil
}

// undo takes away what was made of a user, by the rollback where there is one.
func (of *live) undo(s *directory.Session) error {
	text, what := of.Undo, "rollback_ldif"
	if text == "" {
		text, what = of.End, "deletion_ldif"
	}
	return applyAll(s, text, what)
}

// applyAll makes changes that take away: each, also where one before it failed.
func applyAll(s *directory.Session, text, what string) error {
	list, err := parseLDIF(text)
	for i := range list {
		if failed := list[i].apply(s.Conn, true); failed != nil {
			err = errors.Join(err, refused(what+": "+list[i].dn, failed))
		}
	}
	return err
}

// Renew implements engine.Leaser: entries do not end by themselves.
func (*Engine) Renew(context.Context, engine.View, engine.Lease) (*secrets.Response, error) {
	return nil, nil
}

// Revoke implements engine.Leaser.
func (e *Engine) Revoke(ctx context.Context, view engine.View, l engine.Lease) (*secrets.Response, error) {
	c := &call{Context: ctx, e: e, view: view, r: &secrets.Request{}}
	var lent loan
	if json.Unmarshal(l.Internal, &lent) == nil && lent.ID != "" {
		// The account must be this call's alone, as a lease's end is not: the mount's own request gives it back.
		return elsewhere.Store(elsewhere.DueKey(loanPrefix, time.Unix(0, 0), lent.ID), lent)
	}
	of, err := record.ReadJSON[live](l.Internal)
	if err != nil {
		return nil, err
	}
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	return nil, c.do(ctx, cfg, func(s *directory.Session) error { return applyAll(s, of.End, "deletion_ldif") })
}

// drop ends what an entry of a crash names, or puts that off.
func (c *call) drop() (*secrets.Response, error) {
	of, err := elsewhere.Find[live](c, c.view, c.r.Rest)
	if err != nil || of == nil {
		return &secrets.Response{}, err
	}
	ops := []secrets.Op{storage.Delete(c.r.Rest)}
	cfg, err := c.config()
	if err == nil {
		err = c.do(c, cfg, of.undo)
	}
	if err != nil {
		of.Tries++
		later, err := elsewhere.Put(elsewhere.DueKey(walPrefix, elsewhere.Later(c.r.Now, of.Tries), of.User), of)
		if err != nil {
			return nil, err
		}
		ops = append(ops, later)
	}
	return &secrets.Response{Ops: ops}, nil
}
