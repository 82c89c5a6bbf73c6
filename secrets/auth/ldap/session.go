package ldap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	client "github.com/go-ldap/ldap/v3"

	"corbel.dev/corbel/kit/errkind"
)

// errBadLogin is what a client hears whatever was wrong: who is known is nobody's to learn.
var errBadLogin = errkind.New(errkind.Invalid, "ldap operation failed: failed to bind as user")

// entriesMost bounds what a search gives: groups of a user.
const entriesMost = 10_000

// session is one connection with a deadline.
type session struct {
	c    *config
	conn *client.Conn
	end  func()
}

// open connects to the first directory that answers.
func (e *Engine) open(ctx context.Context, c *config) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Request)
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil, errkind.Errorf(errkind.Unavailable, "the directory: all %d connections are in use", sessions)
	}
	var last error
	for _, at := range c.urls() {
		conn, err := c.dial(ctx, at)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			return &session{c: c, conn: conn, end: func() {
				stop()
				cancel()
				_ = conn.Close()
				<-e.slots
			}}, nil
		}
		last = err
	}
	cancel()
	<-e.slots
	return nil, errkind.Errorf(errkind.Unavailable, "the directory cannot be reached: %v", last)
}

func (c *config) dial(ctx context.Context, at string) (*client.Conn, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	t, err := c.tls(u.Hostname())
	if err != nil {
		return nil, err
	}
	within := c.Connect
	if end, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(end))
	}
	conn, err := client.DialURL(at, client.DialWithDialer(&net.Dialer{Timeout: within}),
		client.DialWithTLSConfig(t))
	if err != nil {
		return nil, err
	}
	conn.SetTimeout(within)
	if c.StartTLS {
		if err := conn.StartTLS(t); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("StartTLS: %w", err)
		}
	}
	conn.SetTimeout(c.Request)
	return conn, nil
}

// judged gives an error of the directory its kind.
func judged(what string, err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.ResultCode < client.ErrorNetwork {
		switch refused.ResultCode {
		case client.LDAPResultBusy, client.LDAPResultUnavailable, client.LDAPResultTimeLimitExceeded:
		default:
			return errkind.Errorf(errkind.Internal, "ldap operation failed: %s: %s", what,
				client.LDAPResultCodeMap[refused.ResultCode])
		}
	}
	return errkind.Errorf(errkind.Unavailable, "the directory: %s: %v", what, err)
}

// asOwn logs the mount's own account in, or nobody where it has none.
func (s *session) asOwn() error {
	if s.c.BindDN == "" {
		return nil
	}
	var err error
	if s.c.BindPass == "" {
		err = s.conn.UnauthenticatedBind(s.c.BindDN)
	} else {
		err = s.conn.Bind(s.c.BindDN, s.c.BindPass)
	}
	if err != nil {
		return judged("binding as binddn", err)
	}
	return nil
}

// bind tries a password, and gives the user's groups.
func (e *Engine) bind(ctx context.Context, c *config, name, password string) (groups []string, err error) {
	s, err := e.open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.end()
	var dn, as string
	switch {
	case c.BindDN != "" || c.Discover:
		if err := s.asOwn(); err != nil {
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
	if err := s.conn.Bind(as, password); err != nil {
		var refused *client.Error
		if errors.As(err, &refused) && slices.Contains([]uint16{client.LDAPResultInvalidCredentials,
			client.LDAPResultNoSuchObject, client.LDAPResultInvalidDNSyntax, client.LDAPResultUnwillingToPerform,
			client.LDAPResultInsufficientAccessRights, client.LDAPResultInappropriateAuthentication}, refused.ResultCode) {
			return nil, errBadLogin
		}
		return nil, judged("binding as the user", err)
	}
	if dn == "" { // Active Directory: it is known once the user is in
		if dn, err = s.find(name); err != nil {
			return nil, err
		}
	}
	if c.BindDN != "" {
		err = s.asOwn()
	} else if c.Anonymous {
		err = s.conn.UnauthenticatedBind("")
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
	defer s.end()
	if err := s.asOwn(); err != nil {
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
	got, err := s.conn.Search(&client.SearchRequest{BaseDN: s.c.UserDN, Scope: client.ScopeWholeSubtree, SizeLimit: 2,
		TimeLimit: s.seconds(), Filter: s.c.filled(s.userFilter(), name, ""), Attributes: []string{"1.1"}})
	switch {
	case client.IsErrorAnyOf(err, client.LDAPResultNoSuchObject, client.LDAPResultSizeLimitExceeded):
		return "", errBadLogin
	case err != nil:
		return "", judged("searching the user", err)
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

func (s *session) seconds() int { return max(int(s.c.Request/time.Second), 1) }

// groups are the names of those that a user is in.
func (s *session) groups(name, dn string) (names []string, err error) {
	if s.c.GroupDN == "" || s.c.GroupFilter == "" {
		return nil, nil
	}
	got, err := s.conn.Search(&client.SearchRequest{BaseDN: s.c.GroupDN, Scope: client.ScopeWholeSubtree,
		SizeLimit: entriesMost, TimeLimit: s.seconds(), Filter: s.c.filled(s.c.GroupFilter, name, dn),
		Attributes: []string{s.c.GroupAttr}})
	if s.c.BindDN == "" && client.IsErrorWithCode(err, client.LDAPResultNoSuchObject) {
		return nil, nil // what the user may not see looks like what is not there
	}
	if err != nil {
		return nil, judged("searching groups", err)
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
