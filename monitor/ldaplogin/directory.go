// Package ldaplogin logs people in to the monitor by their password in an LDAP directory or Active Directory that an
// authentication provider names (authentication/v2 ldap, ad).
//
// The person is looked for by the provider's binding, the password is tried, and what the directory says of groups are
// the person's, with the provider's prefix. Nothing is stored and nothing is kept between logins: the session ends as
// one of an OpenID provider does (package logins).
//
// A login has one deadline for all servers of all providers, and a bounded number run at once, of one address fewer:
// who finds no place waits for one within the deadline, addresses in turn. Safe for concurrent use; nothing is started.
package ldaplogin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	client "github.com/go-ldap/ldap/v3"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

const (
	loginTime  = 12 * time.Second // all in all: the API answers within 15 s
	dialTime   = 4 * time.Second  // then the next server
	atOnce     = 32
	atOnceFrom = 8 // one address
	maxGroups  = 1000
	maxName    = 256
	nestedRule = "1.2.840.113556.1.4.1941" // Active Directory's LDAP_MATCHING_RULE_IN_CHAIN
)

// ErrWrong is the answer to a wrong name or password, of kind Denied.
var ErrWrong = errkind.New(errkind.Denied, "bad credentials")

// Config of a Directories.
type Config struct {
	Resources *resources.Resources
	Log       *slog.Logger
}

// Directories are those that the configuration names. Make it with New.
type Directories struct {
	cfg  Config
	gate *limit.Gate
}

// New returns the directories of a configuration.
func New(cfg Config) *Directories {
	return &Directories{cfg, limit.NewGate(limit.GateConfig{Name: "logins by a directory", Slots: atOnce,
		MaxHeldPerKey: atOnceFrom, MaxWaiting: 4096, MaxPerKey: 512, MaxWait: loginTime})}
}

func (d *Directories) each(f func(*monitor.AuthProvider) bool) {
	d.cfg.Resources.View().List("authproviders", "", "", "", func(i *objects.Item) bool {
		p := i.Object().(*monitor.AuthProvider)
		return p.Directory == "" || f(p)
	})
}

// Login finds out who has a name and a password, and by which provider. Providers are asked by name, each until one
// knows the person. from is whose turn it is, an address. Errors: ErrWrong; Unavailable, no directory said yes and one
// does not answer; Overloaded, who waits too long for a place.
func (d *Directories) Login(ctx context.Context, from, name, password string) (who monitor.Caller,
	by *monitor.AuthProvider, err error) {
	if name == "" || password == "" || len(name) > maxName { // an empty password binds as nobody, and always
		return who, nil, ErrWrong
	}
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	permit, err := d.gate.Acquire(ctx, from)
	switch {
	case errkind.Is(err, errkind.Overloaded):
		return who, nil, err
	case err != nil:
		return who, nil, errkind.E(errkind.Unavailable, "waiting for a place to ask the directory", err)
	}
	defer permit.Release()
	err = ErrWrong
	d.each(func(p *monitor.AuthProvider) bool {
		said, one := d.at(ctx, p, name, password)
		switch {
		case one == nil:
			who, by, err = said, p, nil
			return false
		case !errors.Is(one, ErrWrong):
			d.cfg.Log.Warn("a directory could not say who somebody is", "provider", p.Name, "user", name, "error", one)
			err = errkind.Errorf(errkind.Unavailable, "the directory %q does not answer as it should", p.Name)
		}
		return true
	})
	return who, by, err
}

// at asks one provider: the first of its servers that can be reached decides.
func (d *Directories) at(ctx context.Context, p *monitor.AuthProvider, name, password string) (who monitor.Caller,
	err error) {
	s, err := read(p)
	if err != nil {
		return who, err
	}
	var last error
	for i := range s.Servers {
		c, err := s.Servers[i].open(ctx)
		if err != nil {
			last = err
			continue
		}
		defer c.end()
		user, groups, err := c.person(name, password)
		if err != nil {
			return who, err
		}
		return s.caller(user, groups)
	}
	return who, fmt.Errorf("no server can be reached: %w", last)
}

// caller is the person with the provider's prefixes, which stand before a colon (the contract's).
func (s *spec) caller(user string, groups []string) (who monitor.Caller, err error) {
	prefixed := func(prefix, name string) string {
		if prefix == "" {
			return name
		}
		return prefix + ":" + name
	}
	if who.User = prefixed(s.UsernamePrefix, user); !fits(who.User) {
		return who, errkind.Errorf(errkind.Denied, "the name %q is longer than %d bytes, or has characters that no name has",
			who.User, maxName)
	}
	for _, g := range groups {
		if len(s.AllowedGroups) > 0 && !slices.Contains(s.AllowedGroups, g) {
			continue
		}
		if g = prefixed(s.GroupsPrefix, g); !fits(g) {
			return who, errkind.Errorf(errkind.Denied, "the group %q has a name that no group can have", g)
		}
		who.Groups = append(who.Groups, g)
	}
	if len(who.Groups) > maxGroups {
		return who, errkind.Errorf(errkind.Denied, "%d groups: the most is %d; see allowed_groups", len(who.Groups),
			maxGroups)
	}
	slices.Sort(who.Groups)
	who.Groups = slices.Compact(who.Groups)
	return who, nil
}

func fits(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == '\uFFFD'
	})
}

// session is one connection that ends with its deadline.
type session struct {
	*server
	conn *client.Conn
	end  func()
}

func (s *server) open(ctx context.Context) (*session, error) {
	t, err := s.tls()
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline() // the login's: servers that do not answer use it up together
	conn, err := client.DialURL(s.url(), client.DialWithDialer(&net.Dialer{Timeout: dialTime, Deadline: deadline}),
		client.DialWithTLSConfig(t))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	end := func() {
		stop()
		_ = conn.Close() // whoever was asked has answered
	}
	conn.SetTimeout(loginTime)
	if s.Security == startTLS {
		if err := conn.StartTLS(t); err != nil {
			end()
			return nil, fmt.Errorf("StartTLS: %w", err)
		}
	}
	return &session{s, conn, end}, nil
}

// own logs the provider's account in, or nobody.
func (s *session) own() error {
	if s.Binding == nil {
		return s.conn.UnauthenticatedBind("")
	}
	return s.conn.Bind(s.Binding.UserDN, s.Binding.Password)
}

// person finds somebody, tries the password, and gives the name as the directory has it, and the groups.
func (s *session) person(name, password string) (user string, groups []string, err error) {
	upn := s.activeUser && s.UPNDomain != ""
	if upn { // the person's own rights read the rest
		if !strings.Contains(name, "@") {
			name += "@" + s.UPNDomain
		}
		err = s.try(name, password)
	} else if err = s.own(); err != nil {
		err = fmt.Errorf("binding: %w", err)
	}
	if err != nil {
		return "", nil, err
	}
	entry, err := s.find(name, upn)
	if err != nil {
		return "", nil, err
	}
	if !upn {
		if err := s.try(entry.DN, password); err != nil {
			return "", nil, err
		}
		if err := s.own(); err != nil {
			return "", nil, fmt.Errorf("binding: %w", err)
		}
	}
	if user = entry.GetAttributeValue(s.Users.Attribute); user == "" {
		return "", nil, fmt.Errorf("user_search: %s has no %s", entry.DN, s.Users.Attribute)
	}
	groups, err = s.groups(entry.DN)
	return user, groups, err
}

// refusals are what a directory says to a wrong name or password.
var refusals = []uint16{client.LDAPResultInvalidCredentials, client.LDAPResultNoSuchObject,
	client.LDAPResultInvalidDNSyntax, client.LDAPResultUnwillingToPerform, client.LDAPResultInsufficientAccessRights,
	client.LDAPResultInappropriateAuthentication}

func (s *session) try(as, password string) error {
	err := s.conn.Bind(as, password)
	var refused *client.Error
	if errors.As(err, &refused) && slices.Contains(refusals, refused.ResultCode) {
		return ErrWrong
	}
	return err
}

// find gives the one entry of a name. None and several are one answer.
func (s *session) find(name string, upn bool) (*client.Entry, error) {
	attribute := s.Users.Attribute
	if upn {
		attribute = "userPrincipalName"
	}
	got, err := s.search(s.Users.BaseDN, fmt.Sprintf("(&(objectClass=%s)(%s=%s))", s.Users.ObjectClass, attribute,
		client.EscapeFilter(name)), 2, s.Users.Attribute, s.Users.NameAttribute)
	if client.IsErrorWithCode(err, client.LDAPResultSizeLimitExceeded) || err == nil && len(got) != 1 {
		return nil, ErrWrong
	}
	if err != nil {
		return nil, fmt.Errorf("user_search: %w", err)
	}
	return got[0], nil
}

func (s *session) groups(dn string) (names []string, err error) {
	attribute := s.Groups.Attribute
	if s.Nested {
		attribute += ":" + nestedRule + ":"
	}
	got, err := s.search(s.Groups.BaseDN, fmt.Sprintf("(&(objectClass=%s)(%s=%s))", s.Groups.ObjectClass, attribute,
		client.EscapeFilter(dn)), maxGroups+1, s.Groups.NameAttribute)
	if err != nil {
		return nil, fmt.Errorf("group_search: %w", err)
	}
	for _, entry := range got {
		if name := entry.GetAttributeValue(s.Groups.NameAttribute); name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *session) search(base, filter string, most int, attributes ...string) ([]*client.Entry, error) {
	got, err := s.conn.Search(&client.SearchRequest{BaseDN: base, Scope: client.ScopeWholeSubtree, SizeLimit: most,
		TimeLimit: int(loginTime / time.Second), Filter: filter, Attributes: attributes})
	if err != nil {
		return nil, err
	}
	return got.Entries, nil
}

// Review says what is wrong with a provider (kind Invalid), and what its author should know.
func (d *Directories) Review(_ context.Context, _ string, o monitor.Object) (warnings []string, err error) {
	p, ok := o.(*monitor.AuthProvider)
	if !ok || p.Directory == "" {
		return nil, nil
	}
	s, err := read(p)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "%w", err)
	}
	if s.GroupsPrefix == "" {
		warnings = append(warnings, "spec: groups_prefix is empty: whoever makes groups in the directory makes them here, "+
			"cluster-admins too")
	}
	for i := range s.Servers {
		if s.Servers[i].Security == plain {
			warnings = append(warnings, fmt.Sprintf("spec: servers[%d]: security: insecure shows passwords to the network", i))
		}
	}
	return warnings, nil
}
