package ldapsecrets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	client "github.com/go-ldap/ldap/v3"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/directory"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/engine/naming"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// config is the mount's, under "config".
type config struct {
	directory.Place
	Schema    string `json:"schema"`
	UserDN    string `json:"userdn,omitempty"`
	UserAttr  string `json:"userattr"`
	UPNDomain string `json:"upndomain,omitempty"`
	Policy    string `json:"password_policy,omitempty"`
	Length    int    `json:"length,omitempty"`
	NoImport  bool   `json:"skip_static_role_import_rotation,omitempty"`
	Phrase    string `json:"credential_type,omitempty"` // of racf: password or phrase
	Pending   string `json:"pending,omitempty"`         // of rotate-root: a password that may have been set
}

const (
	configKey  = "config"
	lengthMost = 256
	// racfLength is what RACF takes of a password; phrases have the usual length.
	racfLength = 8
	usual      = 64
)

// userAttrs are the schemas, with the attribute that users are known by.
var userAttrs = map[string]string{"openldap": "cn", "ad": "userPrincipalName", "racf": "racfid"}

func (c *config) params() record.Params {
	return append(c.Place.Params(), record.Params{{Name: "schema", At: &c.Schema}, {Name: "userdn", At: &c.UserDN},
		{Name: "userattr", At: &c.UserAttr}, {Name: "upndomain", At: &c.UPNDomain},
		{Name: "password_policy", At: &c.Policy}, {Name: "length", At: &c.Length},
		{Name: "skip_static_role_import_rotation", At: &c.NoImport}, {Name: "credential_type", At: &c.Phrase}}...)
}

// config is the mount's; that there is none is an error.
func (c *call) config() (*config, error) {
	cfg, err := elsewhere.Find[config](c, c.view, configKey)
	if err == nil && cfg == nil {
		err = elsewhere.Invalid("the config is currently unset: write the mount's config first")
	}
	return cfg, err
}

func (c *call) readConfig() (*secrets.Response, error) {
	cfg, err := elsewhere.Find[config](c, c.view, configKey)
	if err != nil {
		return nil, err
	}
	if cfg == nil {
		return nil, elsewhere.ErrNotFound
	}
	out := map[string]any{}
	cfg.params().Show(out)
	return elsewhere.Answer(out)
}

func (c *call) writeConfig() (*secrets.Response, error) {
	cfg := &config{Place: directory.Fresh(), Schema: "openldap"}
	have, err := elsewhere.Find[config](c, c.view, configKey)
	if err != nil {
		return nil, err
	}
	if have != nil {
		*cfg = *have
	}
	if err := cfg.params().Read(c.f); err != nil {
		return nil, err
	}
	if cfg.ReadHidden(c.f); c.f.Has("bindpass") {
		cfg.Pending = ""
	}
	if cfg.UserAttr == "" || have != nil && have.Schema != cfg.Schema && !c.f.Has("userattr") {
		cfg.UserAttr = userAttrs[cfg.Schema]
	}
	if err := errors.Join(c.f.Err(), cfg.check()); err != nil {
		return nil, err
	}
	if have != nil {
		if err := cfg.Keeps(&have.Place, c.f); err != nil {
			return nil, err
		}
	}
	if _, err := c.password(cfg); err != nil {
		return nil, err
	}
	return elsewhere.Store(configKey, cfg)
}

func (c *config) check() error {
	switch {
	case c.BindDN == "" || c.BindPass == "":
		return elsewhere.Invalid("fields \"binddn\", \"bindpass\": are missing: an account that may set passwords")
	case userAttrs[c.Schema] == "":
		return elsewhere.Invalid("field \"schema\": %q is none of openldap, ad, racf", c.Schema)
	case strings.ContainsAny(c.UserAttr, "=,()*\\ "):
		return elsewhere.Invalid("field \"userattr\": must be the name of an attribute")
	case c.Policy != "" && c.Length != 0:
		return elsewhere.Invalid("fields \"password_policy\", \"length\": only one of them may be set")
	case c.Length != 0 && (c.Length < racfLength || c.Length > lengthMost):
		return elsewhere.Invalid("field \"length\": must be %d to %d", racfLength, lengthMost)
	case !slices.Contains([]string{"", "password", "phrase"}, c.Phrase) || c.Phrase == "phrase" && c.Schema != "racf":
		return elsewhere.Invalid("field \"credential_type\": must be password, or, with schema racf, phrase")
	}
	return c.Check()
}

func (c *call) deleteConfig() (*secrets.Response, error) {
	return &secrets.Response{Ops: []secrets.Op{storage.Delete(configKey)}}, nil
}

// passwordTries is how often a policy is asked for a password that can stand in an LDIF.
const passwordTries = 100

// password is a new one, by the configuration's policy.
func (c *call) password(cfg *config) (string, error) {
	if cfg.Policy == "" {
		n := cfg.Length
		switch {
		case n != 0:
		case cfg.Schema == "racf" && cfg.Phrase != "phrase":
			n = racfLength
		default:
			n = usual
		}
		return naming.Draw(n-3, naming.Letters) + naming.Draw(1, "0123456789") + naming.Draw(1, "abc") +
			naming.Draw(1, "XYZ"), nil
	}
	if c.e.Password == nil {
		return "", elsewhere.Invalid("field \"password_policy\": there are no password policies here")
	}
	for range passwordTries {
		word, err := c.e.Password(c, cfg.Policy)
		if err != nil {
			return "", err
		}
		if fits(word) {
			return word, nil
		}
	}
	return "", elsewhere.Invalid("field \"password_policy\": %s makes passwords that begin or end with a blank or have "+
		"line ends, which cannot stand in LDIF", cfg.Policy)
}

// fits reports whether a value can stand in a line of LDIF as it is.
func fits(value string) bool {
	return value != "" && !strings.ContainsAny(value, "\r\n\x00") && strings.Trim(value, " ") == value &&
		!strings.ContainsAny(value[:1], ":<")
}

// open logs the mount's own account in, by the password that is stored or by the one that may have been set. which is
// the one that it took.
func (c *call) open(ctx context.Context, cfg *config) (s *directory.Session, which string, err error) {
	for _, password := range []string{cfg.BindPass, cfg.Pending} {
		if password == "" {
			continue
		}
		at := *cfg
		at.BindPass = password
		s, err = c.e.desk.Open(ctx, &at.Place)
		if err != nil {
			return nil, "", err
		}
		cause := s.Conn.Bind(at.BindDN, password)
		if cause == nil {
			return s, password, nil
		}
		s.End()
		err = directory.Judged("binding as binddn", cause)
		if !client.IsErrorWithCode(cause, client.LDAPResultInvalidCredentials) {
			break
		}
	}
	return nil, "", err
}

// do lets work be done by the mount's own account.
func (c *call) do(ctx context.Context, cfg *config, work func(s *directory.Session) error) error {
	s, _, err := c.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.End()
	return work(s)
}

// find gives the DN of a user.
func (c *config) find(s *directory.Session, user string) (string, error) {
	if c.UserDN == "" {
		return "", elsewhere.Invalid("the config has no \"userdn\" to search %q below", user)
	}
	value := user
	if c.UPNDomain != "" && c.Schema == "ad" && !strings.Contains(user, "@") {
		value += "@" + c.UPNDomain
	}
	got, err := s.Conn.Search(&client.SearchRequest{BaseDN: c.UserDN, Scope: client.ScopeWholeSubtree, SizeLimit: 2,
		TimeLimit: s.Seconds(), Filter: "(" + c.UserAttr + "=" + client.EscapeFilter(value) + ")",
		Attributes: []string{"1.1"}})
	switch {
	case client.IsErrorWithCode(err, client.LDAPResultSizeLimitExceeded) || err == nil && len(got.Entries) > 1:
		return "", elsewhere.Invalid("the directory has several users with %s=%q below %s", c.UserAttr, value, c.UserDN)
	case client.IsErrorWithCode(err, client.LDAPResultNoSuchObject) || err == nil && len(got.Entries) == 0:
		return "", elsewhere.Invalid("the directory has no user with %s=%q below %s", c.UserAttr, value, c.UserDN)
	case err != nil:
		return "", directory.Judged("searching the user", err)
	}
	return got.Entries[0].DN, nil
}

// set gives an account a password.
func (c *config) set(s *directory.Session, dn, password string) error {
	r := client.NewModifyRequest(dn, nil)
	switch c.Schema {
	case "ad":
		r.Replace("unicodePwd", []string{utf16le(`"` + password + `"`)})
	case "racf":
		attr := "racfPassword"
		if c.Phrase == "phrase" {
			attr = "racfPassPhrase"
		}
		r.Replace(attr, []string{password})
		r.Replace("racfAttributes", []string{"noexpired"})
	default:
		// The extended operation lets the server hash; a server without it is given the password as it is.
		_, err := s.Conn.PasswordModify(client.NewPasswordModifyRequest(dn, "", password))
		if !client.IsErrorAnyOf(err, client.LDAPResultProtocolError, client.LDAPResultUnwillingToPerform) {
			return refused("setting the password", err)
		}
		r.Replace("userPassword", []string{password})
	}
	return refused("setting the password", s.Conn.Modify(r))
}

// refused is Judged, but that what the directory says of an entry is for the caller to mend.
func refused(what string, err error) error {
	if err == nil {
		return nil
	}
	if err = directory.Judged(what, err); errkind.Is(err, errkind.Internal) {
		return elsewhere.Invalid("%s", errkind.Text(err))
	}
	return err
}

func utf16le(text string) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = append(out, byte(unit), byte(unit>>8))
	}
	return string(out)
}

// rotateRoot changes the password of the mount's own account; nobody knows it then.
func (c *call) rotateRoot() (*secrets.Response, error) {
	have, err := c.config()
	if err != nil {
		return nil, err
	}
	cfg := *have
	if cfg.Pending != "" { // of a crash: which of the two counts must be known before another takes its place
		s, which, err := c.open(c, have)
		if err != nil {
			return nil, err
		}
		s.End()
		cfg.BindPass = which
	}
	if cfg.Pending, err = c.password(&cfg); err != nil {
		return nil, err
	}
	resp, err := elsewhere.Store(configKey, cfg)
	if err != nil {
		return nil, err
	}
	resp.Then = elsewhere.Step(func(ctx context.Context) (*secrets.Response, error) {
		err := c.do(ctx, &cfg, func(s *directory.Session) error { return cfg.set(s, cfg.BindDN, cfg.Pending) })
		if err != nil {
			return nil, err
		}
		done := cfg
		done.BindPass, done.Pending = cfg.Pending, ""
		return elsewhere.Store(configKey, done)
	})
	return resp, nil
}

// seconds is a duration as the API shows it.
func seconds(d time.Duration) int64 { return int64(d / time.Second) }
