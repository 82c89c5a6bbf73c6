package ldaplogin

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	client "github.com/go-ldap/ldap/v3"

	"corbel.dev/corbel/kit/exactjson"
	"corbel.dev/corbel/monitor"
)

// spec is what an object of type ldap or ad says.
type spec struct {
	GroupsPrefix   string   `json:"groups_prefix"`
	UsernamePrefix string   `json:"username_prefix"`
	AllowedGroups  []string `json:"allowed_groups"` // without the prefix; none are all
	Servers        []server `json:"servers"`
}

// server is one directory; they are tried in turn.
type server struct {
	Host       string   `json:"host"`
	Port       int      `json:"port"`
	Insecure   bool     `json:"insecure"` // nobody vouches for its certificate
	Security   string   `json:"security"`
	CAFile     string   `json:"trusted_ca_file"`
	CertFile   string   `json:"client_cert_file"`
	KeyFile    string   `json:"client_key_file"`
	Binding    *binding `json:"binding"` // nil is anonymous
	UPNDomain  string   `json:"default_upn_domain"`
	Nested     bool     `json:"include_nested_groups"`
	Groups     search   `json:"group_search"`
	Users      search   `json:"user_search"`
	activeUser bool     // of Active Directory
}

type binding struct {
	UserDN   string `json:"user_dn"`
	Password string `json:"password"`
}

type search struct {
	BaseDN        string `json:"base_dn"`
	Attribute     string `json:"attribute"`
	NameAttribute string `json:"name_attribute"`
	ObjectClass   string `json:"object_class"`
}

// Kinds of connections.
const (
	plain    = "insecure"
	startTLS = "starttls"
	overTLS  = "tls"
)

const maxServers = 8

// read reads a provider's spec, fills in what it leaves out, and says what is wrong with it.
func read(p *monitor.AuthProvider) (*spec, error) {
	if err := exactjson.Check(p.Spec); err != nil { // passwords are hidden and kept by the keys as they stand
		return nil, fmt.Errorf("spec: %w", err)
	}
	s := new(spec)
	d := json.NewDecoder(bytes.NewReader(p.Spec))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	if len(s.Servers) == 0 || len(s.Servers) > maxServers {
		return nil, fmt.Errorf("spec: servers must have from 1 to %d servers", maxServers)
	}
	for i := range s.Servers {
		at := &s.Servers[i]
		at.complete(p.Directory == "ad")
		if err := at.check(p.Directory); err != nil {
			return nil, fmt.Errorf("spec: servers[%d]: %w", i, err)
		}
	}
	return s, nil
}

// complete fills in the contract's defaults.
func (s *server) complete(active bool) {
	s.activeUser = active
	s.Security = cmp.Or(s.Security, overTLS)
	if s.Port == 0 {
		s.Port = 389
		if s.Security == overTLS {
			s.Port = 636
		}
	}
	group, user, name := "groupOfNames", "uid", "cn"
	if active {
		group, user, name = "group", "sAMAccountName", "displayName"
	}
	s.Groups.Attribute = cmp.Or(s.Groups.Attribute, "member")
	s.Groups.NameAttribute = cmp.Or(s.Groups.NameAttribute, "cn")
	s.Groups.ObjectClass = cmp.Or(s.Groups.ObjectClass, group)
	s.Users.Attribute = cmp.Or(s.Users.Attribute, user)
	s.Users.NameAttribute = cmp.Or(s.Users.NameAttribute, name)
	s.Users.ObjectClass = cmp.Or(s.Users.ObjectClass, "person")
}

func (s *server) check(kind string) error {
	switch {
	case s.Host == "":
		return errors.New("host must be set")
	case s.Port < 1 || s.Port > 65535:
		return fmt.Errorf("port %d is not from 1 to 65535", s.Port)
	case s.Security != plain && s.Security != startTLS && s.Security != overTLS:
		return fmt.Errorf("security %q is not %s, %s or %s", s.Security, overTLS, startTLS, plain)
	case (s.CertFile == "") != (s.KeyFile == ""):
		return errors.New("client_cert_file and client_key_file must be set together")
	case s.Binding != nil && (s.Binding.UserDN == "" || s.Binding.Password == ""):
		return errors.New("binding: user_dn and password must be set, or binding left out, which is anonymous")
	case s.Binding != nil && s.Binding.Password == "REDACTED":
		return errors.New("binding: password: REDACTED stands in place of a password that is not shown: set it; it is kept " +
			"where the server, its security and user_dn stay the same")
	case s.Groups.BaseDN == "" || s.Users.BaseDN == "":
		return errors.New("group_search.base_dn and user_search.base_dn must be set")
	case kind != "ad" && (s.UPNDomain != "" || s.Nested):
		return errors.New("default_upn_domain and include_nested_groups are of type ad alone")
	}
	for _, name := range []string{s.Groups.Attribute, s.Groups.NameAttribute, s.Groups.ObjectClass, s.Users.Attribute,
		s.Users.NameAttribute, s.Users.ObjectClass} {
		if _, err := client.CompileFilter("(" + name + "=x)"); err != nil || client.EscapeFilter(name) != name {
			return fmt.Errorf("%q is no name of an attribute or class", name)
		}
	}
	return nil
}

func (s *server) url() string {
	scheme := "ldap://"
	if s.Security == overTLS {
		scheme = "ldaps://"
	}
	return scheme + net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

func (s *server) tls() (*tls.Config, error) {
	t := &tls.Config{ServerName: s.Host, InsecureSkipVerify: s.Insecure, MinVersion: tls.VersionTLS12}
	if s.CAFile != "" {
		text, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("trusted_ca_file: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("trusted_ca_file: %s holds no certificate in PEM", s.CAFile)
		}
	}
	if s.CertFile != "" {
		own, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client_cert_file, client_key_file: %w", err)
		}
		t.Certificates = []tls.Certificate{own}
	}
	return t, nil
}
