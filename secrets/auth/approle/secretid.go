package approle

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// secretID is a secret id as it is stored; what is left of its uses is in the counter beside it.
type secretID struct {
	Accessor   string            `json:"accessor"`
	Created    time.Time         `json:"creation_time"`
	Expires    time.Time         `json:"expiration_time,omitzero"`
	Life       time.Duration     `json:"ttl,omitempty"`
	Uses       int               `json:"num_uses,omitempty"`
	Meta       map[string]string `json:"metadata,omitempty"`
	CIDRs      []string          `json:"cidr_list,omitempty"`
	TokenCIDRs []string          `json:"token_bound_cidrs,omitempty"`
}

func (s *secretID) expired(now time.Time) bool { return !s.Expires.IsZero() && !now.Before(s.Expires) }

func (r *role) secretKey(hash string) string { return "s/" + r.Key + "/id/" + hash }

func (c *call) accessorKey(accessor string) string {
	return "s/" + c.role.Key + "/accessor/" + c.e.Hash(accessor)
}

func (c *call) usesKey(s *secretID) string {
	return "s/" + c.role.Key + "/uses/" + c.e.Hash(s.Accessor)
}

// secret returns a secret id by its name in storage, or nil; it may have ended.
func (c *call) secret(hash string) (*secretID, error) {
	raw, ok, err := c.view.Get(c, c.role.secretKey(hash))
	if err != nil || !ok {
		return nil, err
	}
	s := &secretID{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the record of a secret id of the role %s is not what was stored",
			c.role.Name)
	}
	return s, nil
}

// left is how many uses a limited secret id has.
func (c *call) left(s *secretID) (int, error) {
	raw, ok, err := c.view.Get(c, c.usesKey(s))
	if err != nil || !ok {
		return 0, err
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, errkind.Errorf(errkind.Corrupt, "the count of uses of a secret id of the role %s is not what was stored",
			c.role.Name)
	}
	return n, nil
}

func (c *call) destroy(hash string, s *secretID) []secrets.Op {
	return []secrets.Op{storage.Delete(c.role.secretKey(hash)), storage.Delete(c.accessorKey(s.Accessor)),
		storage.Delete(c.usesKey(s))}
}

func (c *call) secretIDs() (*secrets.Response, error) {
	switch {
	case c.part == "secret-id" && c.Op == secrets.List:
		return c.listSecrets()
	case c.part == "secret-id" && c.write():
		return c.newSecret(uuid.NewString())
	case c.part == "custom-secret-id" && c.write():
		id := c.f.String("secret_id")
		if err := c.f.Err(); err != nil || id == "" {
			return nil, orInvalid(err, "missing secret_id")
		}
		return c.newSecret(id)
	case strings.HasSuffix(c.part, "/lookup") && c.write():
		return c.named(false)
	case strings.HasSuffix(c.part, "/destroy") && (c.write() || c.Op == secrets.Delete):
		return c.named(true)
	}
	return nil, errUnsupported
}

func (c *call) listSecrets() (*secrets.Response, error) {
	prefix := c.role.secretKey("")
	records, err := c.view.Scan(c, prefix, storage.After(prefix), 0)
	var list []string
	for _, r := range records {
		s := secretID{}
		if json.Unmarshal(r.Value, &s) == nil && !s.expired(c.Now) {
			list = append(list, s.Accessor)
		}
	}
	return auth.Keys(list, err)
}

func (c *call) newSecret(id string) (*secrets.Response, error) {
	r, f := c.role, c.f
	if !r.Bind {
		return nil, errkind.New(errkind.Invalid, "bind_secret_id is not set on the role")
	}
	s := &secretID{Accessor: uuid.NewString(), Created: c.Now.UTC(), Uses: f.Int("num_uses", r.Uses),
		Life: f.Duration("ttl", r.Life)}
	if f.String("metadata") != "" || f.Any("metadata") != nil {
		s.Meta = f.Texts("metadata")
	}
	var err error
	if s.CIDRs, err = auth.Blocks(f, "cidr_list"); err != nil {
		return nil, err
	}
	if s.TokenCIDRs, err = auth.Blocks(f, "token_bound_cidrs"); err != nil {
		return nil, err
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case s.Uses < 0 || s.Life < 0:
		return nil, errkind.New(errkind.Invalid, "num_uses, ttl: must not be negative")
	case r.Uses > 0 && (s.Uses == 0 || s.Uses > r.Uses):
		return nil, errkind.Errorf(errkind.Invalid, "field \"num_uses\": the role allows %d at most", r.Uses)
	case r.Life > 0 && (s.Life == 0 || s.Life > r.Life):
		return nil, errkind.Errorf(errkind.Invalid, "field \"ttl\": the role allows %v at most", r.Life)
	case !auth.Narrower(s.CIDRs, r.CIDRs):
		return nil, errkind.New(errkind.Invalid, "field \"cidr_list\": must lie within the role's secret_id_bound_cidrs")
	case !auth.Narrower(s.TokenCIDRs, r.Tokens.CIDRs):
		return nil, errkind.New(errkind.Invalid, "field \"token_bound_cidrs\": must lie within the role's token_bound_cidrs")
	}
	if s.Life > 0 {
		s.Expires = s.Created.Add(s.Life)
	}
	hash := c.e.Hash(id)
	if old, err := c.secret(hash); err != nil || old != nil {
		return nil, orInvalid(err, "SecretID is already registered")
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	resp, err := auth.Data(map[string]any{"secret_id": id, "secret_id_accessor": s.Accessor,
		"secret_id_ttl": auth.Seconds(s.Life), "secret_id_num_uses": s.Uses})
	if err != nil {
		return nil, err
	}
	resp.Ops = []secrets.Op{storage.Put(r.secretKey(hash), raw), storage.Put(c.accessorKey(s.Accessor), []byte(hash))}
	if s.Uses > 0 {
		resp.Ops = append(resp.Ops, storage.Put(c.usesKey(s), []byte(strconv.Itoa(s.Uses))))
	}
	return resp, nil
}

// named looks a secret id up or destroys it, by itself or by its accessor.
func (c *call) named(destroy bool) (*secrets.Response, error) {
	byAccessor := strings.HasPrefix(c.part, "secret-id-accessor")
	field := "secret_id"
	if byAccessor {
		field = "secret_id_accessor"
	}
	id := c.f.String(field)
	if err := c.f.Err(); err != nil || id == "" {
		return nil, orInvalid(err, "missing "+field)
	}
	hash := c.e.Hash(id)
	if byAccessor {
		raw, ok, err := c.view.Get(c, c.accessorKey(id))
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errkind.New(errkind.NotFound, "failed to find accessor entry for secret_id_accessor")
		}
		hash = string(raw)
	}
	s, err := c.secret(hash)
	switch {
	case err != nil:
		return nil, err
	case s == nil || (!destroy && s.expired(c.Now)):
		if byAccessor {
			return nil, errNotFound
		}
		return &secrets.Response{}, nil
	case destroy:
		return &secrets.Response{Ops: c.destroy(hash, s)}, nil
	}
	uses := 0
	if s.Uses > 0 {
		if uses, err = c.left(s); err != nil {
			return nil, err
		}
	}
	meta := s.Meta
	if meta == nil {
		meta = map[string]string{}
	}
	return auth.Data(map[string]any{"secret_id_accessor": s.Accessor, "secret_id_num_uses": uses,
		"secret_id_ttl": auth.Seconds(s.Life), "creation_time": s.Created,
		"last_updated_time": s.Created, "expiration_time": s.Expires, "metadata": meta, "cidr_list": auth.List(s.CIDRs),
		"token_bound_cidrs": auth.List(s.TokenCIDRs)})
}

const badLogin = "invalid role or secret ID"

// login checks role and secret id. The count of a limited one goes down in the batch of the token.
func (c *call) login() (*secrets.Response, error) {
	id, text := c.f.String("role_id"), c.f.String("secret_id")
	if err := c.f.Err(); err != nil || id == "" {
		return nil, orInvalid(err, "missing role_id")
	}
	name, ok, err := c.view.Get(c, roleIDs+c.e.Hash(id))
	if err == nil && ok {
		c.role, err = find(c, c.view, string(name))
	}
	if err != nil || c.role == nil {
		return nil, orInvalid(err, badLogin)
	}
	alias := c.e.Mount + "\x00" + id
	if c.e.Lockout.Locked(&c.e.Rules, alias, c.Now) {
		return nil, auth.ErrDenied
	}
	a := c.role.Tokens.Auth()
	a.DisplayName, a.Alias, a.Metadata, a.Role = "approle", id, map[string]string{"role_name": c.role.Name}, c.role.Name
	a.Login = []byte(c.role.Name)
	resp := &secrets.Response{Auth: a}
	if c.role.Bind {
		if text == "" {
			return nil, errkind.New(errkind.Invalid, "missing secret_id")
		}
		good, err := c.spend(text, resp)
		if err != nil {
			return nil, err
		}
		if !c.e.Lockout.Tell(&c.e.Rules, alias, c.Now, good) {
			return nil, auth.ErrDenied
		}
		if !good {
			return nil, errkind.New(errkind.Invalid, badLogin)
		}
	}
	if !auth.Within(c.role.CIDRs, c.Remote) || !auth.Within(a.BoundCIDRs, c.Remote) {
		return nil, errkind.New(errkind.Invalid, "source address is unauthorized through CIDR restrictions")
	}
	return resp, nil
}

// spend checks a secret id and puts one use less into the answer's batch.
func (c *call) spend(text string, resp *secrets.Response) (good bool, err error) {
	hash := c.e.Hash(text)
	s, err := c.secret(hash)
	if err != nil || s == nil || s.expired(c.Now) {
		return false, err
	}
	if !auth.Within(s.CIDRs, c.Remote) {
		return false, errkind.New(errkind.Invalid,
			"source address is unauthorized through CIDR restrictions on the secret ID")
	}
	if s.Uses > 0 {
		if !c.Alone {
			return false, engine.Alone("login\x00" + text)
		}
		n, err := c.left(s)
		switch {
		case err != nil || n <= 0:
			return false, err
		case n == 1:
			resp.Ops = c.destroy(hash, s)
		default:
			resp.Ops = []secrets.Op{storage.Put(c.usesKey(s), []byte(strconv.Itoa(n-1)))}
		}
	}
	maps.Copy(resp.Auth.Metadata, s.Meta)
	resp.Auth.Metadata["role_name"] = c.role.Name
	if len(s.TokenCIDRs) > 0 {
		resp.Auth.BoundCIDRs = s.TokenCIDRs
	}
	return true, nil
}

// tidiedAtOnce bounds how many ended secret ids one tidy takes away.
const tidiedAtOnce = 1000

// tidy takes secret ids away that have ended.
func (c *call) tidy() (*secrets.Response, error) {
	names, err := c.view.List(c, roles, "", 0)
	if err != nil {
		return nil, err
	}
	resp := &secrets.Response{Status: http.StatusAccepted}
	for _, name := range names {
		if c.role, err = find(c, c.view, name); err != nil || c.role == nil {
			continue // a damaged role keeps what it has; reading it says so
		}
		prefix := c.role.secretKey("")
		records, err := c.view.Scan(c, prefix, storage.After(prefix), 0)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			s := secretID{}
			if json.Unmarshal(r.Value, &s) == nil && s.expired(c.Now) && len(resp.Ops) < 3*tidiedAtOnce {
				resp.Ops = append(resp.Ops, c.destroy(strings.TrimPrefix(r.Key, prefix), &s)...)
			}
		}
	}
	resp.Warnings = []string{"Secret IDs that have ended are taken away, 1,000 at most by one call."}
	return resp, nil
}
