package mfa

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/onetime"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
)

var errTypes = errkind.New(errkind.Invalid,
	"MFA methods of the types duo, okta and pingid are not there: Corbel has totp")

// call is a request below identity/mfa/ with what it found.
type call struct {
	context.Context
	*task.Task
	*rules
	f   *secrets.Fields
	ops []secrets.Op
}

// Answer answers identity/mfa/ of the task's namespace. Its writes exclude each other: its caller sees to that, and
// calls Changed once they are stored.
func (f *Factors) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	fields, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &call{Context: ctx, Task: t, f: fields}
	if c.rules, err = read(ctx, &t.View); err != nil {
		return nil, err
	}
	kind, name, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(r.Rest, "mfa/"), "/"), "/")
	var resp *secrets.Response
	switch kind {
	case "method":
		resp, err = c.atMethod(name)
	case "login-enforcement":
		resp, err = c.atEnforcement(name)
	default:
		return nil, auth.ErrPath
	}
	if err != nil {
		return nil, err
	}
	if resp == nil {
		resp = &secrets.Response{}
	}
	resp.Ops = c.ops
	return resp, nil
}

func (c *call) writes() bool { return c.Op == secrets.Create || c.Op == secrets.Update }

// atMethod answers method, method/ID, method/totp and what is below it.
func (c *call) atMethod(name string) (*secrets.Response, error) {
	kind, id, below := strings.Cut(name, "/")
	switch {
	case name == "" || name == kindTOTP:
		switch {
		case c.Op == secrets.List:
			return c.listMethods()
		case name == kindTOTP && c.writes():
			return c.writeMethod(c.f.String("method_id"))
		}
		return nil, auth.ErrUnsupported
	case kind == "duo" || kind == "okta" || kind == "pingid":
		return nil, errTypes
	case !below && c.Op == secrets.Read:
		return c.readMethod(name)
	case !below:
		return nil, auth.ErrUnsupported
	case kind != kindTOTP || strings.Contains(id, "/"):
		return nil, auth.ErrPath
	case id == "generate" || id == "admin-generate" || id == "admin-destroy":
		if !c.writes() {
			return nil, auth.ErrUnsupported
		}
		return c.secret(id)
	case c.writes():
		return c.writeMethod(id)
	case c.Op == secrets.Read:
		return c.readMethod(id)
	case c.Op == secrets.Delete:
		return nil, c.deleteMethod(id)
	}
	return nil, auth.ErrUnsupported
}

func (c *call) listMethods() (*secrets.Response, error) {
	keys, info := []string{}, map[string]any{}
	for _, m := range c.methods {
		keys = append(keys, m.ID)
		info[m.ID] = c.showMethod(m)
	}
	return auth.KeyInfo(keys, info)
}

// in completes what is shown with the namespace.
func (c *call) in(shown map[string]any) map[string]any {
	shown["namespace_id"], shown["namespace_path"] = cmp.Or(c.Tables.SpaceID(), "root"), c.Tables.Path()
	return shown
}

func (c *call) showMethod(m *Method) map[string]any {
	return c.in(map[string]any{"type": m.Type, "id": m.ID, "name": m.Name, "issuer": m.Issuer, "period": m.Period,
		"algorithm": m.Algorithm, "digits": m.Digits, "skew": m.Skew, "key_size": m.KeySize, "qr_size": m.QRSize,
		"max_validation_attempts": m.Attempts})
}

func (c *call) readMethod(id string) (*secrets.Response, error) {
	m := c.rules.method(id)
	if m == nil {
		return nil, auth.ErrNotFound
	}
	return auth.Data(c.showMethod(m))
}

// writeMethod makes a method, or changes the one with the ID. Keys that were made by it stay as they are.
func (c *call) writeMethod(id string) (*secrets.Response, error) {
	m := &Method{ID: uuid.NewString(), Type: kindTOTP, Period: 30, Algorithm: "SHA1", Digits: 6, Skew: 1, KeySize: 20,
		QRSize: 200, Attempts: 5}
	if id != "" {
		old := c.rules.method(id)
		if old == nil {
			return nil, errkind.Errorf(errkind.Invalid, "field \"method_id\": there is no MFA method %.64q", id)
		}
		*m = *old
	} else if len(c.methods) >= maxMethods {
		return nil, errkind.Errorf(errkind.Invalid, "there are %d MFA methods already, the most that there may be",
			maxMethods)
	}
	for field, at := range map[string]*string{"method_name": &m.Name, "issuer": &m.Issuer, "algorithm": &m.Algorithm} {
		if c.f.Has(field) {
			*at = c.f.String(field)
		}
	}
	m.Digits, m.Skew = c.f.Int("digits", m.Digits), c.f.Int("skew", m.Skew)
	m.KeySize, m.QRSize = c.f.Int("key_size", m.KeySize), c.f.Int("qr_size", m.QRSize)
	m.Attempts = c.f.Int("max_validation_attempts", m.Attempts)
	if c.f.Has("period") {
		m.Period = int(auth.Seconds(c.f.Duration("period", 0)))
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if err := c.checkMethod(m); err != nil {
		return nil, err
	}
	op, err := storage.PutJSON(methodKey+m.ID, m)
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, op)
	return auth.Data(map[string]any{"method_id": m.ID})
}

func (c *call) checkMethod(m *Method) error {
	key := m.key("")
	if err := key.Check(); err != nil {
		return err
	}
	if err := onetime.CheckSizes(m.KeySize, m.QRSize); err != nil {
		return err
	}
	same := find(c.methods, func(o *Method) bool { return m.Name != "" && o.Name == m.Name && o.ID != m.ID })
	switch {
	case m.Issuer == "":
		return errkind.New(errkind.Invalid, "field \"issuer\": is missing")
	case len(m.Issuer) > 256 || len(m.Name) > 256:
		return errkind.New(errkind.Invalid, "issuer, method_name: 256 bytes at most")
	case m.Name != "" && !plain.MatchString(m.Name):
		return errkind.Errorf(errkind.Invalid, "field \"method_name\": %.64q must be letters, digits, '_', '-' and '.'",
			m.Name)
	case same != nil:
		return errkind.Errorf(errkind.Invalid, "field \"method_name\": %q is the name of method %s already", m.Name, same.ID)
	case m.Attempts < 1 || m.Attempts > 100:
		return errkind.New(errkind.Invalid, "field \"max_validation_attempts\": must be 1 to 100")
	}
	return nil
}

// plain is what names may be.
var plain = regexp.MustCompile(`^\w(([\w.-]+)?\w)?$`)

func (c *call) deleteMethod(id string) error {
	for _, e := range c.enforcements {
		if slices.Contains(e.Methods, id) {
			return errkind.Errorf(errkind.Invalid, "MFA method %.64q is needed by the login enforcement %q: change that first",
				id, e.Name)
		}
	}
	if c.rules.method(id) != nil {
		c.ops = append(c.ops, storage.Delete(methodKey+id))
	}
	return nil
}

// secret makes an entity's key of a method, or takes it away.
func (c *call) secret(what string) (*secrets.Response, error) {
	id, entity := c.f.String("method_id"), c.Whose
	if what != "generate" {
		entity = c.f.String("entity_id")
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	m := c.rules.method(id)
	switch {
	case id == "":
		return nil, errkind.New(errkind.Invalid, "field \"method_id\": is missing")
	case m == nil:
		return nil, errkind.Errorf(errkind.Invalid, "field \"method_id\": there is no MFA method %.64q", id)
	case entity == "" && what == "generate":
		return nil, errkind.New(errkind.Invalid, "the token is of no entity: an operator uses admin-generate")
	case entity == "":
		return nil, errkind.New(errkind.Invalid, "field \"entity_id\": is missing")
	}
	e, err := c.Tables.Identities.Entity(c, entity)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, errkind.Errorf(errkind.Invalid, "field \"entity_id\": there is no entity %.64q", entity)
	}
	old, err := get[secret](c, &c.View, secretKey(e.ID, m.ID))
	if err != nil {
		return nil, err
	}
	if what == "admin-destroy" {
		if old != nil {
			c.ops = append(c.ops, storage.Delete(secretKey(e.ID, m.ID)), storage.Delete(usedKey(e.ID, m.ID)))
		}
		return nil, nil
	}
	if old != nil {
		return &secrets.Response{Warnings: []string{"The entity has a key of MFA method " + m.shown() +
			" already: admin-destroy takes it away."}}, nil
	}
	s := &secret{Key: m.key(e.Name), ID: uuid.NewString()}
	link, picture, err := s.Generate(m.KeySize, m.QRSize)
	if err != nil {
		return nil, err
	}
	op, err := storage.PutJSON(secretKey(e.ID, m.ID), s)
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, op, storage.Delete(usedKey(e.ID, m.ID)))
	return auth.Data(map[string]any{"url": link, "barcode": picture})
}

// atEnforcement answers login-enforcement and login-enforcement/NAME.
func (c *call) atEnforcement(name string) (*secrets.Response, error) {
	old := c.rules.enforcement(name)
	switch {
	case name == "" && c.Op == secrets.List:
		keys, info := []string{}, map[string]any{}
		for _, e := range c.enforcements {
			keys = append(keys, e.Name)
			info[e.Name] = c.showEnforcement(e)
		}
		return auth.KeyInfo(keys, info)
	case name == "":
		return nil, auth.ErrUnsupported
	case strings.Contains(name, "/"):
		return nil, auth.ErrPath
	case c.writes():
		return nil, c.writeEnforcement(name, old)
	case c.Op == secrets.Read && old == nil:
		return nil, auth.ErrNotFound
	case c.Op == secrets.Read:
		return auth.Data(c.showEnforcement(old))
	case c.Op == secrets.Delete:
		if old != nil {
			c.ops = append(c.ops, storage.Delete(enforceKey+old.ID))
		}
		return nil, nil
	}
	return nil, auth.ErrUnsupported
}

func (c *call) showEnforcement(e *Enforcement) map[string]any {
	return c.in(map[string]any{"id": e.ID, "name": e.Name, "mfa_method_ids": auth.List(e.Methods),
		"auth_method_accessors": auth.List(e.Accessors), "auth_method_types": auth.List(e.Types),
		"identity_group_ids": auth.List(e.Groups), "identity_entity_ids": auth.List(e.Entities)})
}

// writeEnforcement makes an enforcement, or changes the fields that are given of old.
func (c *call) writeEnforcement(name string, old *Enforcement) error {
	e := &Enforcement{ID: uuid.NewString(), Name: name}
	if old != nil {
		*e = *old
	}
	for _, at := range e.lists() {
		if c.f.Has(at.field) {
			list := c.f.Strings(at.field)
			slices.Sort(list)
			*at.list = slices.Compact(list)
		}
	}
	if err := c.f.Err(); err != nil {
		return err
	}
	switch {
	case len(name) > 256 || !plain.MatchString(name):
		return errkind.Errorf(errkind.Invalid, "the name %.64q must be letters, digits, '_', '-' and '.', 256 at most", name)
	case old == nil && len(c.enforcements) >= maxEnforcements:
		return errkind.Errorf(errkind.Invalid, "there are %d login enforcements already, the most that there may be",
			maxEnforcements)
	case len(e.Methods) == 0:
		return errkind.New(errkind.Invalid, "field \"mfa_method_ids\": is missing")
	case len(e.Accessors)+len(e.Types)+len(e.Groups)+len(e.Entities) == 0:
		return errkind.New(errkind.Invalid, "one of auth_method_accessors, auth_method_types, identity_group_ids, "+
			"identity_entity_ids must be given")
	}
	for _, at := range e.lists() {
		if len(*at.list) > maxListed {
			return errkind.Errorf(errkind.Invalid, "field %q: has %d values, more than %d", at.field, len(*at.list), maxListed)
		}
		for _, v := range *at.list {
			known, err := c.known(at.field, v)
			if err != nil {
				return err
			}
			if !known {
				return errkind.Errorf(errkind.Invalid, "field %q: there is no %.64q", at.field, v)
			}
		}
	}
	op, err := storage.PutJSON(enforceKey+e.ID, e)
	c.ops = append(c.ops, op)
	return err
}

// listField is a list of an enforcement by the name that the API has for it.
type listField struct {
	field string
	list  *[]string
}

func (e *Enforcement) lists() []listField {
	return []listField{{"mfa_method_ids", &e.Methods}, {"auth_method_accessors", &e.Accessors},
		{"auth_method_types", &e.Types}, {"identity_group_ids", &e.Groups}, {"identity_entity_ids", &e.Entities}}
}

// known reports whether there is what an enforcement names.
func (c *call) known(field, value string) (bool, error) {
	switch field {
	case "mfa_method_ids":
		return c.rules.method(value) != nil, nil
	case "identity_group_ids":
		g, err := c.Tables.Identities.Group(c, value)
		return g != nil, err
	case "identity_entity_ids":
		e, err := c.Tables.Identities.Entity(c, value)
		return e != nil && e.ID == value, err
	}
	for _, e := range c.Tables.Mounts.All() {
		if strings.HasPrefix(e.Path, "auth/") && e.Type != "token" && (value == e.Accessor || value == e.Type &&
			field == "auth_method_types") {
			return true, nil
		}
	}
	return false, nil
}
