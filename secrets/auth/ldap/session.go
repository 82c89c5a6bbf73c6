package ldap

import (
	"context"
	"errors"
	"slices"
	"strings"

	client "github.com/go-ldap/ldap/v3"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/directory"
)

// errBadLogin is what a client hears whatever was wrong: who is known is nobody's to learn.
var errBadLogin = errkind.New(errkind.Invalid, "ldap operation failed: failed to bind as user")

// entriesMost bounds what a search gives: groups of a user.
const entriesMost = 10_000

// session is one connection with a deadline.
type session struct {
	*directory.Session
	c *config
}

func (e *Engine) open(ctx context.Context, c *config) (*session, error) {
	s, err := e.desk.Open(ctx, &c.Place)
	return &session{s, c}, err
}

// bind tries a password, and gives the user's groups.
func (e *Engine) bind(ctx context.Context, c *config, name, password string) (groups []string, err error) {
	s, err := e.open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.End()
	var dn, as string
	switch {
	case c.BindDN != "" || c.Discover:
		if err := s.AsOwn(); err != nil {
			return nil, err
		}
		if dn, err = s.find(name); err != nil {
			return nil, err
		}
		as = dn
	case c.UPNDomain != "":
		as = name + "@" + c.UPNDomain
	default:
		dn = c.UserAttr + "=" + client.EscapeDN(name) + "," + c.UserDN
		as = dn
	}
	if err := s.Conn.Bind(as, password); err != nil {
		var refused *client.Error
		if errors.As(err, &refused) && slices.Contains([]uint16{client.LDAPResultInvalidCredentials,
			client.LDAPResultNoSuchObject, client.LDAPResultInvalidDNSyntax, client.LDAPResultUnwillingToPerform,
			client.LDAPResultInsufficientAccessRights, client.LDAPResultInappropriateAuthentication}, refused.ResultCode) {
			return nil, errBadLogin
		}
		return nil, directory.Judged("binding as the user", err)
	}
	if dn == "" { // Active Directory: it is known once the user is in
		if dn, err = s.find(name); err != nil {
			return nil, err
		}
	}
	if c.BindDN != "" {
		err = s.AsOwn()
	} else if c.Anonymous {
		err = s.Conn.UnauthenticatedBind("")
	}
	if err != nil {
		return nil, err
	}
	return s.groups(name, dn)
}

// lookUp gives the groups of a user of now, by the mount's own account.
func (e *Engine) lookUp(ctx context.Context, c *config, name string) ([]string, error) {
	s, err := e.open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.End()
	if err := s.AsOwn(); err != nil {
		return nil, err
	}
	dn, err := s.find(name)
	if err != nil {
		return nil, err
	}
	return s.groups(name, dn)
}

// find gives the user's DN. None and several are one answer.
func (s *session) find(name string) (string, error) {
	got, err := s.Conn.Search(&client.SearchRequest{BaseDN: s.c.UserDN, Scope: client.ScopeWholeSubtree, SizeLimit: 2,
		TimeLimit: s.Seconds(), Filter: s.c.filled(s.userFilter(), name, ""), Attributes: []string{"1.1"}})
	switch {
	case client.IsErrorAnyOf(err, client.LDAPResultNoSuchObject, client.LDAPResultSizeLimitExceeded):
		return "", errBadLogin
	case err != nil:
		return "", directory.Judged("searching the user", err)
	case len(got.Entries) != 1:
		return "", errBadLogin
	}
	return got.Entries[0].DN, nil
}

// userFilter is the configuration's; with a domain of Active Directory, the name is the one that it logs in by.
func (s *session) userFilter() string {
	if s.c.UPNDomain != "" && s.c.UserFilter == userPlain {
		return "(userPrincipalName={{.Username}}@" + client.EscapeFilter(s.c.UPNDomain) + ")"
	}
	return s.c.UserFilter
}

// groups are the names of those that a user is in.
func (s *session) groups(name, dn string) (names []string, err error) {
	if s.c.GroupDN == "" || s.c.GroupFilter == "" {
		return nil, nil
	}
	got, err := s.Conn.Search(&client.SearchRequest{BaseDN: s.c.GroupDN, Scope: client.ScopeWholeSubtree,
		SizeLimit: entriesMost, TimeLimit: s.Seconds(), Filter: s.c.filled(s.c.GroupFilter, name, dn),
		Attributes: []string{s.c.GroupAttr}})
	if s.c.BindDN == "" && client.IsErrorWithCode(err, client.LDAPResultNoSuchObject) {
		return nil, nil // what the user may not see looks like what is not there
	}
	if err != nil {
		return nil, directory.Judged("searching groups", err)
	}
	for _, entry := range got.Entries {
		for _, value := range entry.GetAttributeValues(s.c.GroupAttr) {
			names = append(names, groupName(value))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// groupName is a value of groupattr: a name, or the common name of a DN, as memberOf has it.
func groupName(value string) string {
	if dn, err := client.ParseDN(value); err == nil {
		for _, part := range dn.RDNs {
			for _, a := range part.Attributes {
				if strings.EqualFold(a.Type, "cn") {
					return a.Value
				}
			}
		}
	}
	return value
}

// filled puts names into the places of a filter. What they hold cannot change its form.
func (c *config) filled(filter, name, dn string) string {
	for _, blanks := range []string{"{{ .", "{{  ."} {
		filter = strings.ReplaceAll(filter, blanks, "{{.")
	}
	filter = strings.ReplaceAll(filter, " }}", "}}")
	return strings.NewReplacer("{{.UserAttr}}", c.UserAttr, "{{.Username}}", client.EscapeFilter(name), "{{.UserDN}}",
		client.EscapeFilter(dn)).Replace(filter)
}

func checkFilter(filled string) error {
	if strings.Contains(filled, "{{") {
		return errors.New("only {{.UserAttr}}, {{.Username}} and {{.UserDN}} may stand in it")
	}
	if filled == "" {
		return nil
	}
	_, err := client.CompileFilter(filled)
	return err
}
