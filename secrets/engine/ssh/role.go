package ssh

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/record"
)

// The types of roles.
const (
	typeCA  = "ca"
	typeOTP = "otp"
)

// Role says who may be let in where.
type Role struct {
	Type string // ca or otp
	Users
	Names
	Content
	Span
	OTP
}

// Users are the accounts that may be asked for.
type Users struct {
	Default  string // default_user
	Allowed  []string
	Template bool // allowed_users and default_user name who asks
}

// Names are the hosts that a host's certificate may be for.
type Names struct {
	Domains         []string
	Bare, Subdomain bool
}

// Content is what else certificates may hold.
type Content struct {
	User, Host        bool // which certificates
	KeyIDs            bool // callers may choose the id
	IDFormat          string
	Critical          []string // allowed_critical_options
	Extensions        []string // allowed_extensions; "*" is any, none is any too when there are no defaults
	DefaultCritical   map[string]string
	DefaultExtensions map[string]string
	ExtensionTemplate bool
	KeyLengths        map[string]string // allowed_user_key_lengths: by type of key, in bits
	Signer            string            // algorithm_signer
}

// Span is how long certificates live.
type Span struct {
	TTL, Max, Before time.Duration
}

// OTP is what roles of one-time passwords have.
type OTP struct {
	Port          int
	CIDRs, Except []string
}

func newRole() *Role {
	return &Role{Content: Content{Signer: "default"}, Span: Span{Before: 30 * time.Second}, OTP: OTP{Port: 22}}
}

// params are the parameters that both types have, and those of r's type, as users know them.
func (r *Role) params() record.Params {
	p := record.Params{{Name: "key_type", At: &r.Type}, {Name: "default_user", At: &r.Default}}
	if r.Type == typeOTP {
		return append(p, record.Params{{Name: "port", At: &r.Port}, {Name: "cidr_list", At: &r.CIDRs},
			{Name: "exclude_cidr_list", At: &r.Except}, {Name: "allowed_users", At: &r.Allowed}}...)
	}
	return append(p, record.Params{
		{Name: "allowed_users", At: &r.Allowed}, {Name: "allowed_users_template", At: &r.Template},
		{Name: "allowed_domains", At: &r.Domains}, {Name: "allow_bare_domains", At: &r.Bare},
		{Name: "allow_subdomains", At: &r.Subdomain}, {Name: "allow_user_certificates", At: &r.User},
		{Name: "allow_host_certificates", At: &r.Host}, {Name: "allow_user_key_ids", At: &r.KeyIDs},
		{Name: "key_id_format", At: &r.IDFormat}, {Name: "allowed_critical_options", At: &r.Critical},
		{Name: "allowed_extensions", At: &r.Extensions}, {Name: "default_critical_options", At: &r.DefaultCritical},
		{Name: "default_extensions", At: &r.DefaultExtensions},
		{Name: "default_extensions_template", At: &r.ExtensionTemplate},
		{Name: "allowed_user_key_lengths", At: &r.KeyLengths}, {Name: "algorithm_signer", At: &r.Signer},
		{Name: "ttl", At: &r.TTL}, {Name: "max_ttl", At: &r.Max}, {Name: "not_before_duration", At: &r.Before},
	}...)
}

func decodeRole(raw []byte) (*Role, error) {
	r := newRole()
	f, err := secrets.ParseFields(raw)
	if err != nil {
		return nil, err
	}
	r.Type = f.String("key_type")
	return r, r.params().Decode(raw)
}

func (c *call) role() (*Role, error) {
	r, ok, err := c.e.roles.Get(c, c.view, "role/"+c.name, decodeRole)
	if err == nil && !ok {
		err = invalid("unknown role: %s", c.name)
	}
	return r, err
}

func (c *call) roleList() (*secrets.Response, error) {
	names, err := c.view.List(c, "role/", c.f.String("after"), max(c.f.Int("limit", 0), 0))
	if err == nil {
		err = c.f.Err()
	}
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errNotFound
	}
	info := map[string]any{}
	for _, name := range names {
		r, ok, err := c.e.roles.Get(c, c.view, "role/"+name, decodeRole)
		if err != nil {
			return nil, err
		}
		if ok {
			info[name] = map[string]any{"key_type": r.Type}
		}
	}
	return answer(map[string]any{"keys": names, "key_info": info})
}

func (c *call) roleRead() (*secrets.Response, error) {
	r, ok, err := c.e.roles.Get(c, c.view, "role/"+c.name, decodeRole)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errNotFound
	}
	shown := map[string]any{}
	r.params().Show(shown)
	for _, list := range []string{"allowed_users", "allowed_domains", "allowed_critical_options", "allowed_extensions",
		"cidr_list", "exclude_cidr_list"} { // users see them as they write them
		if texts, ok := shown[list].([]string); ok {
			shown[list] = strings.Join(texts, ",")
		}
	}
	return answer(shown)
}

func (c *call) roleDelete() (*secrets.Response, error) {
	return &secrets.Response{Ops: []secrets.Op{{Key: "role/" + c.name}}}, nil
}

func (c *call) roleWrite() (*secrets.Response, error) {
	r := newRole()
	if old, ok, err := c.e.roles.Get(c, c.view, "role/"+c.name, decodeRole); err != nil {
		return nil, err
	} else if ok && c.f.String("key_type") == "" {
		own := *old
		r = &own
	}
	if kind := c.f.String("key_type"); kind != "" {
		r.Type = kind
	}
	if r.Type != typeCA && r.Type != typeOTP {
		return nil, invalid("missing key type: key_type must be ca or otp")
	}
	p := r.params()
	if err := p.Read(c.f); err != nil {
		return nil, err
	}
	if err := r.judge(); err != nil {
		return nil, err
	}
	raw, err := p.Encode()
	return &secrets.Response{Ops: []secrets.Op{{Key: "role/" + c.name, Value: raw}}}, err
}

// signers are the signatures that an RSA authority may be told to make.
var signers = []string{"", "default", "ssh-rsa", "rsa-sha2-256", "rsa-sha2-512"}

func (r *Role) judge() error {
	if r.Type == typeOTP {
		switch {
		case r.Default == "":
			return invalid("missing default user: default_user is required for otp")
		case len(r.CIDRs) == 0:
			return invalid("both zero address and CIDR blocks cannot be empty: cidr_list is required")
		case r.Port < 1 || r.Port > 65535:
			return invalid("port must be from 1 to 65535")
		}
		for _, text := range slices.Concat(r.CIDRs, r.Except) {
			if _, err := netip.ParsePrefix(text); err != nil {
				return invalid("failed to validate cidr_list: %v", err)
			}
		}
		return nil
	}
	switch {
	case !r.User && !r.Host:
		return invalid("either 'allow_user_certificates' or 'allow_host_certificates' must be set to 'true'")
	case r.Max > 0 && r.TTL > r.Max:
		return invalid(`"ttl" value must be less than "max_ttl" when both are specified`)
	case !slices.Contains(signers, r.Signer):
		return invalid("unknown algorithm signer %q: default, ssh-rsa, rsa-sha2-256 or rsa-sha2-512", r.Signer)
	}
	for kind, text := range r.KeyLengths {
		for part := range strings.SplitSeq(strings.Trim(text, "[]"), ",") {
			if bits, err := strconv.Atoi(strings.TrimSpace(part)); err != nil || bits < 0 {
				return invalid("allowed_user_key_lengths: %s: %q is no number of bits", kind, part)
			}
		}
	}
	return nil
}
