package identity

import (
	"crypto/rand"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
)

// oidcRole says what a token says.
type oidcRole struct {
	Name     string        `json:"name"`
	Key      string        `json:"key"`
	Client   string        `json:"client_id"`
	Template string        `json:"template,omitempty"`
	TTL      time.Duration `json:"ttl"`
}

// reserved are the members that no template may set.
var reserved = []string{"iss", "sub", "aud", "exp", "iat", "nbf", "jti", "nonce", "at_hash", "c_hash", "auth_time",
	"namespace"}

// templateOf reads a template: JSON, also in base64.
func templateOf(text string) string {
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil && text != "" {
		return string(raw)
	}
	return text
}

// ReadTemplate reads a template of claims: JSON, also in base64. It is filled for nobody, and must then give an object
// without reserved members.
func ReadTemplate(text string, now time.Time) (string, error) {
	if text = templateOf(text); text == "" {
		return "", nil
	}
	return text, checkTemplate(text, now)
}

// checkTemplate fills a template for nobody, which must give an object without reserved members.
func checkTemplate(text string, now time.Time) error {
	object, err := (&Persona{Entity: &Entity{}}).object(text, now)
	if err != nil {
		return errkind.Errorf(errkind.Invalid, "error parsing template: %w", err)
	}
	for name := range object {
		if slices.Contains(reserved, name) {
			return errkind.Errorf(errkind.Invalid, "top level key %q not allowed. Restricted keys: %s", name,
				strings.Join(reserved, ", "))
		}
	}
	return nil
}

// role answers create, read, update, delete and list of roles.
func (c tokens) role(name string) (*secrets.Response, error) {
	if name == "" {
		if c.Op != secrets.List {
			return nil, auth.ErrUnsupported
		}
		return auth.Keys(c.View.List(c, oidcRoles, "", 0))
	}
	r, err := auth.Find[oidcRole](c, c.View, oidcRoles, name)
	switch {
	case err != nil:
		return nil, err
	case c.Op == secrets.Read && r == nil:
		return nil, auth.ErrNotFound
	case c.Op == secrets.Read:
		return auth.Data(map[string]any{"key": r.Key, "client_id": r.Client, "template": r.Template,
			"ttl": auth.Seconds(r.TTL)})
	case c.Op == secrets.Delete:
		c.drop(oidcRoles + name)
		return nil, nil
	case !c.writes():
		return nil, auth.ErrUnsupported
	}
	if r == nil {
		r = &oidcRole{Name: name, TTL: 24 * time.Hour, Client: rand.Text()}
	}
	return nil, c.writeRole(r)
}

func (c tokens) writeRole(r *oidcRole) error {
	for field, into := range map[string]*string{"key": &r.Key, "client_id": &r.Client, "template": &r.Template} {
		if c.f.Has(field) && (field != "client_id" || c.f.String(field) != "") {
			*into = c.f.String(field)
		}
	}
	r.TTL = c.f.Duration("ttl", r.TTL)
	if err := c.f.Err(); err != nil {
		return err
	}
	text, err := ReadTemplate(r.Template, c.now)
	if err != nil {
		return err
	}
	r.Template = text
	if r.Key == "" {
		return errkind.New(errkind.Invalid, "the key parameter is required")
	}
	k, err := auth.Find[namedKey](c, c.View, oidcKeys, r.Key)
	switch {
	case err != nil:
		return err
	case k == nil:
		return errkind.Errorf(errkind.Invalid, "cannot find key %q", r.Key)
	case r.TTL < time.Second || r.TTL > k.Verification:
		return errkind.New(errkind.Invalid, "a role's token ttl must be a second at least, and cannot be longer than the "+
			"verification_ttl of the key it references")
	}
	return c.store(oidcRoles+r.Name, r)
}

// issue signs a token of the caller's own entity.
func (c tokens) issue(name string) (*secrets.Response, error) {
	r, err := auth.Find[oidcRole](c, c.View, oidcRoles, name)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, errkind.Errorf(errkind.Invalid, "role %q not found", name)
	}
	k, err := auth.Find[namedKey](c, c.View, oidcKeys, r.Key)
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, errkind.Errorf(errkind.Invalid, "key %q not found", r.Key)
	case !k.allows(r.Client):
		return nil, errkind.Errorf(errkind.Invalid,
			"the key %q does not list the client ID of the role %q as an allowed client ID", r.Key, name)
	case c.Whose == "":
		return nil, errkind.New(errkind.Invalid, "no entity associated with the request's token")
	}
	p, err := c.Resolve(c, c.Whose)
	if err != nil {
		return nil, err
	}
	if p == nil || p.Entity.Disabled {
		return nil, errkind.New(errkind.Denied, "permission denied")
	}
	issuer, err := c.issuer()
	if err != nil {
		return nil, err
	}
	claims, err := p.Claims(r.Template, c.now)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "the template of role %q gives no JSON object for this entity", name)
	}
	for member, v := range map[string]any{"iss": issuer, "sub": p.Entity.ID, "aud": r.Client, "namespace": "root",
		"iat": c.now.Unix(), "exp": c.now.Add(r.TTL).Unix()} {
		claims[member] = v
	}
	token, err := k.sign(claims)
	if err != nil {
		return nil, err
	}
	return auth.Data(map[string]any{"token": token, "client_id": r.Client, "ttl": auth.Seconds(r.TTL)})
}

// introspect tells whether a token is of ours and holds now.
func (c tokens) introspect() (*secrets.Response, error) {
	text, client := c.f.String("token"), c.f.String("client_id")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if text == "" {
		return nil, errkind.New(errkind.Invalid, "missing token")
	}
	why, err := c.inactive(text, client)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return auth.Data(map[string]any{"active": false, "error": why})
	}
	return auth.Data(map[string]any{"active": true})
}

func (c tokens) inactive(text, client string) (why string, err error) {
	tok, err := jwks.Parse(text, jwks.Published)
	if err != nil {
		return "the token is no JWT that could be of this server", nil
	}
	issuer, err := c.issuer()
	if err != nil {
		return "", err
	}
	list, err := c.allKeys()
	if err != nil {
		return "", err
	}
	for _, k := range list {
		for _, v := range k.published(c.now) {
			if v.ID != tok.KeyID() {
				continue
			}
			said, err := tok.SignedByOne(v)
			if err != nil {
				return "unable to validate the token signature", nil
			}
			return c.judge(said, issuer, client)
		}
	}
	return "unable to validate the token signature", nil
}

func (c tokens) judge(said *jwks.Claims, issuer, client string) (why string, err error) {
	switch {
	case said.Issuer != issuer:
		return "invalid issuer", nil
	case !said.HasExpiry || !c.now.Before(said.Expires):
		return "token is expired", nil
	case client != "" && !slices.Contains(said.Audience, client):
		return "token audience does not match the client ID", nil
	}
	e, err := c.Book.Entity(c, said.Subject)
	switch {
	case err != nil:
		return "", err
	case e == nil:
		return "entity was not found", nil
	case e.Disabled:
		return "entity is disabled", nil
	}
	return "", nil
}
