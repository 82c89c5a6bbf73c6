package aclrows

import (
	"net/netip"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/grants"
)

// A person logs in with a browser: the client asks where to send it (auth-url), and brings what it came back with
// (callback). Both are answered by the leader, which keeps the login meanwhile.

func (al *Rows) oidcBegin(q *rows.Request) error {
	var in struct {
		AuthMethod  string
		RedirectURI string
		ClientNonce string
		Meta        map[string]string
		enterprise
	}
	k, err := al.login(q, &in)
	if err != nil {
		return err
	}
	v := &grants.Visit{Redirect: in.RedirectURI, Nonce: in.ClientNonce, Meta: in.Meta}
	if from, err := netip.ParseAddrPort(q.R.RemoteAddr); err == nil { // a socket has no address: they share their room
		v.From = from.Addr()
	}
	address, err := k.BeginLogin(q.R.Context(), in.AuthMethod, v)
	if err != nil {
		return err
	}
	return q.ReplyValue(map[string]string{"AuthURL": address})
}

func (al *Rows) oidcEnd(q *rows.Request) error {
	var in struct {
		AuthMethod  string
		State       string
		Code        string
		ClientNonce string
		enterprise
	}
	k, err := al.login(q, &in)
	if err != nil {
		return err
	}
	t, err := k.EndLogin(q.R.Context(), in.AuthMethod, &grants.Back{State: in.State, Code: in.Code, Nonce: in.ClientNonce})
	return replyMade(q, t, err)
}

// oidcMethod is what a login form shows of a method, to whoever comes.
type oidcMethod struct {
	Name        string
	DisplayName string `json:",omitempty"`
	Type        string
}

func (al *Rows) oidcMethods(q *rows.Request) error {
	out := []oidcMethod{}
	if al.Keeper == nil { // ACLs are off
		return q.ReplyValue(out)
	}
	st, err := q.ReadRecords(catalog.RecordACLAuthMethod)
	if err != nil {
		return err
	}
	for _, m := range grants.AuthMethods(st) {
		if m.Type == "oidc" {
			out = append(out, oidcMethod{m.Name, m.DisplayName, m.Type})
		}
	}
	return q.ReplyValue(out)
}

// loginMethod is what whoever logs in to the jobs plane needs to know of a method.
type loginMethod struct {
	Name, Type string
	Default    bool `json:",omitempty"`
}

// loginMethods tells whoever comes with which methods people and machines log in: a client that names none takes the
// default one.
func (al *Rows) loginMethods(q *rows.Request) error {
	out := []loginMethod{}
	st, err := q.ReadRecords(catalog.RecordACLAuthMethod)
	if err != nil {
		return err
	}
	for _, m := range grants.AuthMethods(st) {
		if m.Type == "oidc" || m.Type == "jwt" {
			out = append(out, loginMethod{m.Name, m.Type, m.IsDefault()})
		}
	}
	return q.ReplyValue(out)
}
