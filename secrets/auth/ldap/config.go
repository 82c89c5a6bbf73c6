package ldap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
)

// config is the mount's, under "config".
type config struct {
	URL      string `json:"url"`
	BindDN   string `json:"binddn,omitempty"`
	BindPass string `json:"bindpass,omitempty"`
	tlsRule
	userRule
	groupRule
	Folded  bool          `json:"folded"` // names are lower case: not case_sensitive_names
	Request time.Duration `json:"request_timeout"`
	Connect time.Duration `json:"connection_timeout"`
	Params  auth.Params   `json:"params"`
}

// tlsRule is how the directory is trusted.
type tlsRule struct {
	StartTLS bool   `json:"starttls,omitempty"`
	Insecure bool   `json:"insecure_tls,omitempty"`
	CA       string `json:"certificate,omitempty"` // PEM, as the two below
	Cert     string `json:"client_tls_cert,omitempty"`
	Key      string `json:"client_tls_key,omitempty"` // nobody reads it
	TLSMin   string `json:"tls_min_version"`
	TLSMax   string `json:"tls_max_version"`
}

// userRule is how users are found.
type userRule struct {
	UserDN     string `json:"userdn,omitempty"`
	UserAttr   string `json:"userattr"`
	UserFilter string `json:"userfilter"`
	UPNDomain  string `json:"upndomain,omitempty"`
	Discover   bool   `json:"discoverdn,omitempty"`
}

// groupRule is how their groups are.
type groupRule struct {
	GroupDN     string `json:"groupdn,omitempty"`
	GroupAttr   string `json:"groupattr"`
	GroupFilter string `json:"groupfilter"`
	Anonymous   bool   `json:"anonymous_group_search,omitempty"`
}

const (
	nameBytes  = 256
	longest    = 90 * time.Second
	userPlain  = "({{.UserAttr}}={{.Username}})"
	groupPlain = "(|(memberUid={{.Username}})(member={{.UserDN}})(uniqueMember={{.UserDN}}))"
)

func fresh() *config {
	return &config{URL: "ldap://127.0.0.1", Folded: true, Request: longest, Connect: 30 * time.Second,
		tlsRule:   tlsRule{TLSMin: "tls12", TLSMax: "tls12"},
		userRule:  userRule{UserAttr: "cn", UserFilter: userPlain},
		groupRule: groupRule{GroupAttr: "cn", GroupFilter: groupPlain}}
}

// settings reads the mount's; nil: there are none.
func settings(ctx context.Context, view engine.View) (*config, error) {
	return auth.Find[config](ctx, view, configKey, "")
}

func (c *config) params() record.Params {
	return record.Params{{Name: "url", At: &c.URL}, {Name: "binddn", At: &c.BindDN}, {Name: "starttls", At: &c.StartTLS},
		{Name: "insecure_tls", At: &c.Insecure}, {Name: "certificate", At: &c.CA}, {Name: "client_tls_cert", At: &c.Cert},
		{Name: "tls_min_version", At: &c.TLSMin}, {Name: "tls_max_version", At: &c.TLSMax},
		{Name: "userdn", At: &c.UserDN}, {Name: "userattr", At: &c.UserAttr}, {Name: "userfilter", At: &c.UserFilter},
		{Name: "upndomain", At: &c.UPNDomain}, {Name: "discoverdn", At: &c.Discover}, {Name: "groupdn", At: &c.GroupDN},
		{Name: "groupattr", At: &c.GroupAttr}, {Name: "groupfilter", At: &c.GroupFilter},
		{Name: "anonymous_group_search", At: &c.Anonymous}, {Name: "request_timeout", At: &c.Request},
		{Name: "connection_timeout", At: &c.Connect}}
}

func (c *config) show() map[string]any {
	out := map[string]any{}
	c.params().Show(out)
	c.Params.Show(out)
	out["case_sensitive_names"], out["deny_null_bind"], out["use_token_groups"] = !c.Folded, true, false
	out["username_as_alias"] = true
	return out
}

var tlsVersions = map[string]uint16{"tls12": tls.VersionTLS12, "tls13": tls.VersionTLS13}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// read takes what was given, and refuses what cannot be.
func (c *config) read(f *secrets.Fields) error {
	if err := c.params().Read(f); err != nil {
		return err
	}
	if err := c.Params.Read(f); err != nil {
		return err
	}
	c.Folded = !f.Bool("case_sensitive_names", !c.Folded)
	if f.Has("bindpass") {
		c.BindPass = f.String("bindpass")
	}
	if f.Has("client_tls_key") {
		c.Key = f.String("client_tls_key")
	}
	deny, token := f.Bool("deny_null_bind", true), f.Bool("use_token_groups", false)
	if err := f.Err(); err != nil {
		return err
	}
	switch {
	case !deny:
		return invalid("field \"deny_null_bind\": must be true: a directory lets in who has no password as nobody")
	case token:
		return invalid("field \"use_token_groups\": is not supported: name groups by groupfilter")
	case tlsVersions[c.TLSMin] == 0 || tlsVersions[c.TLSMax] == 0 || c.TLSMin > c.TLSMax:
		return invalid("fields \"tls_min_version\", \"tls_max_version\": must be tls12 or tls13, the first not above " +
			"the second")
	case c.UserAttr == "" || strings.ContainsAny(c.UserAttr, "=,()*\\ "):
		return invalid("field \"userattr\": must be the name of an attribute")
	case c.Request <= 0 || c.Request > longest || c.Connect <= 0 || c.Connect > longest:
		return invalid("fields \"request_timeout\", \"connection_timeout\": must be above 0 and at most %v", longest)
	case c.BindDN == "" && c.BindPass != "":
		return invalid("field \"binddn\": is missing, and bindpass is its password")
	}
	for _, text := range c.urls() {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || (u.Scheme != "ldap" && u.Scheme != "ldaps") {
			return invalid("field \"url\": %q is not like ldap://ldap.example.com or ldaps://ldap.example.com:636", text)
		}
		if c.StartTLS && u.Scheme == "ldaps" {
			return invalid("field \"starttls\": is for ldap:// alone: ldaps:// is TLS from its beginning")
		}
	}
	for name, text := range map[string]string{"userfilter": c.UserFilter, "groupfilter": c.GroupFilter} {
		if err := checkFilter(c.filled(text, "x", "cn=x")); err != nil {
			return invalid("field %q: %v", name, err)
		}
	}
	_, err := c.tls("ldap.example.com")
	return err
}

// urls are the directories, which are tried in turn.
func (c *config) urls() (list []string) {
	for text := range strings.SplitSeq(c.URL, ",") {
		list = append(list, strings.TrimSpace(text))
	}
	return list
}

func (c *config) tls(host string) (*tls.Config, error) {
	t := &tls.Config{ServerName: host, InsecureSkipVerify: c.Insecure, MinVersion: tlsVersions[c.TLSMin],
		MaxVersion: tlsVersions[c.TLSMax]}
	if c.CA != "" {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM([]byte(c.CA)) {
			return nil, invalid("field \"certificate\": holds no certificate in PEM")
		}
	}
	if c.Cert != "" || c.Key != "" {
		own, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key))
		if err != nil {
			return nil, invalid("fields \"client_tls_cert\", \"client_tls_key\": are no certificate with its key, in PEM")
		}
		t.Certificates = []tls.Certificate{own}
	}
	return t, nil
}

// sameReach reports whether the password of one goes nowhere else with the other, nor less safely.
func (c *config) sameReach(o *config) bool {
	return slices.Equal(c.urls(), o.urls()) && c.StartTLS == o.StartTLS && c.Insecure == o.Insecure && c.CA == o.CA
}

// fold brings a name into the form that records and directories are asked by.
func (c *config) fold(name string) string {
	if c != nil && !c.Folded {
		return name
	}
	return strings.ToLower(name)
}
