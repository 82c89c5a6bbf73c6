package acme

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// Settings are config/acme.
type Settings struct {
	Enabled  bool          `json:"enabled"`
	Policy   string        `json:"default_directory_policy"`
	Roles    []string      `json:"allowed_roles"`
	Issuers  []string      `json:"allowed_issuers"`
	RoleEKU  bool          `json:"allow_role_ext_key_usage"`
	EAB      string        `json:"eab_policy"`
	Resolver string        `json:"dns_resolver"`
	MaxTTL   time.Duration `json:"max_ttl"`
}

// What eab_policy may be.
const (
	eabNone   = "not-required"
	eabNew    = "new-account-required"
	eabAlways = "always-required"
)

const settingsKey = "config/acme"

func settingsOf(ctx context.Context, view engine.View) (*Settings, error) {
	s, err := get[Settings](ctx, view, settingsKey)
	if err == nil && s == nil {
		s = &Settings{Policy: "sign-verbatim", Roles: []string{"*"}, Issuers: []string{"*"}, EAB: eabNone,
			MaxTTL: 90 * 24 * time.Hour}
	}
	return s, err
}

func (s *Settings) params() record.Params {
	return record.Params{{Name: "enabled", At: &s.Enabled}, {Name: "default_directory_policy", At: &s.Policy},
		{Name: "allowed_roles", At: &s.Roles}, {Name: "allowed_issuers", At: &s.Issuers},
		{Name: "allow_role_ext_key_usage", At: &s.RoleEKU}, {Name: "eab_policy", At: &s.EAB},
		{Name: "dns_resolver", At: &s.Resolver}, {Name: "max_ttl", At: &s.MaxTTL}}
}

// ReadSettings answers a read of config/acme.
func ReadSettings(ctx context.Context, view engine.View) (*secrets.Response, error) {
	s, err := settingsOf(ctx, view)
	if err != nil {
		return nil, err
	}
	return s.show()
}

func (s *Settings) show() (*secrets.Response, error) {
	out := map[string]any{}
	s.params().Show(out)
	raw, err := json.Marshal(out)
	return &secrets.Response{Data: raw}, err
}

// WriteSettings answers a write of config/acme. base is the mount's URL, as in config/cluster.
func WriteSettings(ctx context.Context, view engine.View, f *secrets.Fields, base string) (*secrets.Response, error) {
	s, err := settingsOf(ctx, view)
	if err != nil {
		return nil, err
	}
	if err := s.params().Read(f); err != nil {
		return nil, err
	}
	role, isRole := strings.CutPrefix(s.Policy, "role:")
	_, _, badResolver := net.SplitHostPort(s.Resolver)
	invalid := func(format string, args ...any) error { return errkind.Errorf(errkind.Invalid, format, args...) }
	switch {
	case s.Policy != "sign-verbatim" && s.Policy != "forbid" && !(isRole && role != ""):
		return nil, invalid("field \"default_directory_policy\": must be sign-verbatim, forbid or role:NAME")
	case isRole && !named(s.Roles, role):
		return nil, invalid("field \"default_directory_policy\": the role %s is none of allowed_roles", role)
	case !slices.Contains([]string{eabNone, eabNew, eabAlways}, s.EAB):
		return nil, invalid("field \"eab_policy\": must be %s, %s or %s", eabNone, eabNew, eabAlways)
	case s.Resolver != "" && badResolver != nil:
		return nil, invalid("field \"dns_resolver\": must be an address with a port, like 10.0.0.53:53")
	case s.MaxTTL <= 0:
		return nil, invalid("field \"max_ttl\": must be above 0")
	case s.Enabled && base == "":
		return nil, invalid("field \"enabled\": the path of config/cluster must be set first, since directories name it")
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	resp, err := s.show()
	if err == nil {
		resp.Ops = []secrets.Op{storage.Put(settingsKey, raw)}
	}
	return resp, err
}

func named(list []string, name string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, name)
}

// Role is the role of a directory; "" is none: any name that a client proves.
func (s *Settings) Role(d Directory) string {
	if d.Role != "" {
		return d.Role
	}
	role, _ := strings.CutPrefix(s.Policy, "role:")
	if role == s.Policy {
		return ""
	}
	return role
}

// allows refuses a directory that the settings do not want.
func (s *Settings) allows(d Directory) error {
	switch {
	case d.Role == "" && s.Policy == "forbid":
		return problem(http.StatusForbidden, "unauthorized", "directories without a role are forbidden at this mount")
	case s.Role(d) != "" && !named(s.Roles, s.Role(d)):
		return problem(http.StatusForbidden, "unauthorized", "the role %s is none of allowed_roles", s.Role(d))
	case d.Issuer != "" && !named(s.Issuers, d.Issuer):
		return problem(http.StatusForbidden, "unauthorized", "the issuer %s is none of allowed_issuers", d.Issuer)
	}
	return nil
}

// binding is a key that an operator gives a client to make one account with, under "acme/eab/<id>".
type binding struct {
	Key  []byte    `json:"key"`
	Dir  string    `json:"dir"`
	Made time.Time `json:"created"`
}

const eabPrefix = "acme/eab/"

func (c *call) newEAB() (*secrets.Response, error) {
	id, secret := uuid.NewString(), make([]byte, 32)
	_, _ = rand.Read(secret)
	b := binding{Key: secret, Dir: c.dir.Prefix() + "directory", Made: c.r.Now.UTC()}
	if err := c.put(eabPrefix+id, b); err != nil {
		return nil, err
	}
	out := b.show()
	out["id"], out["key"] = id, base64.RawURLEncoding.EncodeToString(secret)
	raw, err := json.Marshal(out)
	return &secrets.Response{Data: raw}, err
}

func (b *binding) show() map[string]any {
	return map[string]any{"key_type": "hs", "acme_directory": b.Dir, "created_on": b.Made.Format(time.RFC3339)}
}

// ListEAB answers a list of the bindings that no account uses yet.
func ListEAB(ctx context.Context, view engine.View) (*secrets.Response, error) {
	ids, err := view.List(ctx, eabPrefix, "", 0)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	info := map[string]any{}
	for _, id := range ids {
		b, err := get[binding](ctx, view, eabPrefix+id)
		if err != nil {
			return nil, err
		}
		if b != nil {
			info[id] = b.show()
		}
	}
	raw, err := json.Marshal(map[string]any{"keys": ids, "key_info": info})
	return &secrets.Response{Data: raw}, err
}

// DeleteEAB takes a binding away.
func DeleteEAB(id string) (*secrets.Response, error) {
	if err := storage.CheckKey(eabPrefix + id); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	return &secrets.Response{Ops: []secrets.Op{storage.Delete(eabPrefix + id)}}, nil
}

// bound checks the binding of a new account, and uses it up.
func (c *call) bound(raw json.RawMessage) (id string, err error) {
	if raw == nil {
		if c.set.EAB != eabNone {
			return "", problem(http.StatusUnauthorized, "externalAccountRequired",
				"this directory needs an external account binding")
		}
		return "", nil
	}
	var j struct{ Protected, Payload, Signature string }
	if json.Unmarshal(raw, &j) != nil {
		return "", malformed("externalAccountBinding is no signed object")
	}
	m, err := parseMessage(j.Protected, j.Payload, j.Signature)
	if err != nil {
		return "", err
	}
	refused := problem(http.StatusUnauthorized, "unauthorized", "the external account binding is unknown or wrong")
	b, err := get[binding](c, c.view, eabPrefix+m.head.Kid)
	if err != nil {
		return "", err
	}
	if b == nil || m.head.Kid == "" || b.Dir != c.dir.Prefix()+"directory" || !m.signedWith(b.Key) {
		return "", refused
	}
	k, err := parseKey(m.payload)
	if err != nil || m.head.URL != c.msg.head.URL || !k.same(c.msg.key.public) {
		return "", refused
	}
	c.ops = append(c.ops, storage.Delete(eabPrefix+m.head.Kid))
	return m.head.Kid, nil
}
