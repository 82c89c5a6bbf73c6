// Package acme issues certificates by the ACME protocol (RFC 8555) for a mount of pki: directories, accounts, orders,
// challenges, and what operators set (contract 4.6).
//
// It keeps nothing but nonces in memory: after a restart or a change of the leader a client's next request is told
// badNonce with a good one, and is sent again. Everything else is records below "acme/", each change in the commit of
// its request. What expires is named in an index by time ("acme/ends/...") and deleted by the engine's own requests.
//
// A challenge is looked at in the request that asks for it: its state is stored as processing, the look happens
// outside of any lock with a deadline, and what came of it is stored. After a crash between, the client asks again.
// At most probes looks are under way at a time; beyond that clients are told to come again.
//
// Who signs is the mount's own (Authority): its roles say which names and keys may be.
package acme

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// Authority is what signs and revokes: the mount, seen by one request. What it stores goes into the request's commit.
type Authority interface {
	// Sign makes the certificate of a request by a directory's role and issuer and the settings' bounds; it is PEM, with
	// its chain behind it. ttl 0 is the role's.
	Sign(at Directory, s *Settings, csr []byte, ttl time.Duration) (chain string, err error)
	// Revoke revokes a certificate; already is whether it was before.
	Revoke(der []byte) (already bool, err error)
	// Base is the mount's URL, "" where none is set.
	Base() (string, error)
}

// Server is the protocol of one mount.
type Server struct {
	Nonces Nonces
	Prober Prober
}

// Directory says by which issuer and role certificates are made; "" is the mount's choice.
type Directory struct{ Issuer, Role string }

// Prefix is the path of the directory below its mount, with a '/' at its end.
func (d Directory) Prefix() string {
	p := "acme/"
	if d.Role != "" {
		p = "roles/" + d.Role + "/" + p
	}
	if d.Issuer != "" {
		p = "issuer/" + d.Issuer + "/" + p
	}
	return p
}

// Split takes a path below a mount apart; ok is false where it is of no directory.
func Split(path string) (d Directory, rest string, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) > 2 && parts[0] == "issuer" {
		d.Issuer, parts = parts[1], parts[2:]
	}
	if len(parts) > 2 && parts[0] == "roles" {
		d.Role, parts = parts[1], parts[2:]
	}
	if len(parts) < 2 || parts[0] != "acme" {
		return d, "", false
	}
	return d, strings.Join(parts[1:], "/"), true
}

// Open are the paths that need no token: the protocol has its own signatures.
func Open() (list []string) {
	for _, prefix := range []string{"", "roles/+/", "issuer/+/", "issuer/+/roles/+/"} {
		for _, rest := range []string{"directory", "new-nonce", "new-account", "new-order", "revoke-cert", "key-change",
			"account/+", "account/+/orders", "order/+", "order/+/finalize", "order/+/cert", "authorization/+",
			"challenge/+/+"} {
			list = append(list, prefix+"acme/"+rest)
		}
	}
	return list
}

// Routes are the paths of directories, as engine.Router says.
func Routes() (list []engine.Route) {
	write := []secrets.Operation{secrets.Update}
	for _, path := range Open() {
		ops := write
		if strings.HasSuffix(path, "/directory") || strings.HasSuffix(path, "/new-nonce") {
			ops = []secrets.Operation{secrets.Read}
		}
		at := strings.ReplaceAll(path, "+", "{name}")
		list = append(list, engine.Route{Path: at, Ops: ops, Open: true})
		if prefix, is := strings.CutSuffix(at, "directory"); is {
			list = append(list, engine.Route{Path: prefix + "new-eab", Ops: write})
		}
	}
	return list
}

// Serial names what a request has to itself, as engine.Engine says; ok is false where the path is none of ACME's.
func Serial(path string) (key string, ok bool) {
	_, rest, ok := Split(path)
	if !ok {
		return "", false
	}
	parts := strings.Split(rest, "/")
	switch {
	case parts[0] == "challenge" || parts[0] == "authorization":
		return "acme/authz/" + strings.Join(parts[1:min(2, len(parts))], ""), true
	case parts[0] == "order" && len(parts) == 3:
		return "acme/order/" + parts[1], true
	case parts[0] == "new-order":
		return "", true
	}
	return "acme", true
}

// call is one request.
type call struct {
	context.Context
	s     *Server
	by    Authority
	view  engine.View
	r     *secrets.Request
	set   *Settings
	dir   Directory
	base  string // the URL of the directory, with a '/' at its end
	parts []string
	msg   *message // of a request that is signed
	acct  *account // whose key signed it, where the message names one
	ops   []secrets.Op
}

// Handle answers a request of a directory. Errors of the protocol are answers in its own form; an error is one of the
// plane.
func (s *Server) Handle(ctx context.Context, view engine.View, r *secrets.Request, by Authority) (*secrets.Response,
	error) {
	d, rest, _ := Split(r.Rest)
	c := &call{Context: ctx, s: s, by: by, view: view, r: r, dir: d, parts: strings.Split(rest, "/")}
	resp, err := c.handle(rest)
	return c.finish(resp, err)
}

// finish makes an answer of what went wrong, and gives the client its next nonce.
func (c *call) finish(resp *secrets.Response, err error) (*secrets.Response, error) {
	if err != nil {
		p, is := problemOf(err)
		if !is {
			return nil, err
		}
		body, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		resp, c.ops = &secrets.Response{Raw: &secrets.Raw{Status: p.Status, ContentType: "application/problem+json",
			Body: body}}, nil
	}
	resp.Ops = append(resp.Ops, c.ops...)
	if resp.Raw != nil && c.base != "" {
		resp.Raw.Headers = append(resp.Raw.Headers, "Replay-Nonce", c.s.Nonces.New(), "Link",
			"<"+c.base+"directory>;rel=\"index\"")
	}
	return resp, nil
}

func (c *call) handle(rest string) (resp *secrets.Response, err error) {
	if c.set, err = settingsOf(c, c.view); err != nil {
		return nil, err
	}
	base, err := c.by.Base()
	if err != nil {
		return nil, err
	}
	if rest == "new-eab" && c.r.Op.Writes() {
		return c.newEAB()
	}
	if !c.set.Enabled || base == "" {
		return nil, problem(http.StatusNotFound, "malformed", "ACME is not enabled at this mount")
	}
	c.base = strings.TrimSuffix(base, "/") + "/" + c.dir.Prefix()
	if err := c.set.allows(c.dir); err != nil {
		return nil, err
	}
	switch {
	case c.r.Op == secrets.Read && rest == "directory":
		return c.directory()
	case c.r.Op == secrets.Read && rest == "new-nonce":
		return &secrets.Response{Raw: &secrets.Raw{ContentType: "text/plain"}}, nil
	case c.r.Op != secrets.Update && c.r.Op != secrets.Create:
		return nil, problem(http.StatusMethodNotAllowed, "malformed", "only POST is answered here")
	}
	do := routes[c.route()]
	if do == nil {
		return nil, problem(http.StatusNotFound, "malformed", "no such path")
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	return do(c)
}

// route is the path with its ids taken out.
func (c *call) route() string {
	parts := slices.Clone(c.parts)
	if len(parts) > 1 {
		parts[1] = "+"
	}
	if len(parts) > 2 && parts[0] == "challenge" {
		parts[2] = "+"
	}
	return strings.Join(parts, "/")
}

var routes = map[string]func(*call) (*secrets.Response, error){
	"new-account": (*call).newAccount, "account/+": (*call).updateAccount, "account/+/orders": (*call).listOrders,
	"key-change": (*call).changeKey, "new-order": (*call).newOrder, "order/+": (*call).readOrder,
	"order/+/finalize": (*call).finalize, "order/+/cert": (*call).certificate,
	"authorization/+": (*call).authorization, "challenge/+/+": (*call).challenge, "revoke-cert": (*call).revoke,
}

func (c *call) directory() (*secrets.Response, error) {
	return c.object(http.StatusOK, map[string]any{"newNonce": c.base + "new-nonce", "newAccount": c.base + "new-account",
		"newOrder": c.base + "new-order", "revokeCert": c.base + "revoke-cert", "keyChange": c.base + "key-change",
		"meta": map[string]any{"externalAccountRequired": c.set.EAB != eabNone}})
}

// object answers with one; headers are names and values.
func (c *call) object(status int, v any, headers ...string) (*secrets.Response, error) {
	body, err := json.Marshal(v)
	return &secrets.Response{Raw: &secrets.Raw{Status: status, ContentType: "application/json", Body: body,
		Headers: headers}}, err
}

// open checks the signature of a request, and whose it is.
func (c *call) open() error {
	f, err := c.r.Fields()
	if err != nil {
		return problem(http.StatusBadRequest, "malformed", "the body is no JSON object")
	}
	c.msg, err = parseMessage(f.String("protected"), f.String("payload"), f.String("signature"))
	if err != nil {
		return err
	}
	byKey := c.parts[0] == "new-account" || c.parts[0] == "revoke-cert" && c.msg.head.Key != nil
	key := c.msg.key
	switch {
	case c.msg.head.URL != c.base+strings.Join(c.parts, "/"):
		return problem(http.StatusUnauthorized, "unauthorized", "the url of the signed header is another than the request's")
	case byKey && key == nil:
		return problem(http.StatusBadRequest, "malformed", "the signed header must have jwk here")
	case !byKey && c.msg.head.Kid == "":
		return problem(http.StatusBadRequest, "malformed", "the signed header must have kid here")
	case !byKey:
		id, ok := strings.CutPrefix(c.msg.head.Kid, c.base+"account/")
		if !ok {
			return problem(http.StatusBadRequest, "accountDoesNotExist", "the account is none of this directory's")
		}
		if c.acct, err = c.account(id); err != nil {
			return err
		}
		if key, err = parseKey(c.acct.Key); err != nil {
			return err
		}
	}
	if err := c.msg.signedBy(key); err != nil {
		return err
	}
	if !c.s.Nonces.Use(c.msg.head.Nonce) { // only what is signed uses a nonce up
		return problem(http.StatusBadRequest, "badNonce", "the nonce is unknown, too old or was used before")
	}
	if c.acct != nil && c.acct.Status != statusValid {
		return problem(http.StatusUnauthorized, "unauthorized", "the account is %s", c.acct.Status)
	}
	if c.acct != nil && c.set.EAB == eabAlways && c.acct.EAB == "" {
		return problem(http.StatusUnauthorized, "externalAccountRequired", "the account was made without a binding")
	}
	return nil
}

// payload reads what was signed; an empty one is a mere question (POST-as-GET).
func (c *call) payload(into any) (empty bool, err error) {
	if len(c.msg.payload) == 0 {
		return true, nil
	}
	if json.Unmarshal(c.msg.payload, into) != nil {
		return false, problem(http.StatusBadRequest, "malformed", "the payload is not what belongs here")
	}
	return false, nil
}

func (c *call) put(key string, v any) error {
	raw, err := json.Marshal(v)
	c.ops = append(c.ops, storage.Put(key, raw))
	return err
}

// get reads a record; nil is none.
func get[T any](ctx context.Context, view engine.View, key string) (*T, error) {
	if storage.CheckKey(key) != nil {
		return nil, nil
	}
	raw, ok, err := view.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	v := new(T)
	return v, json.Unmarshal(raw, v)
}
