// Package ldapsecrets changes passwords in LDAP directories, and makes and ends entries there (contract 4.10; mounts of
// the type ldap): static roles, whose account's password changes by the clock; dynamic ones, whose entries live as long
// as their lease; and libraries, whose accounts are lent to one borrower at a time.
//
// What is done in a directory is written down before it is done (see elsewhere). A password is stored as pending before
// it is set. An entry that is made has a record by which a crash's remnant is taken away. A loan is stored before its
// password is set, and ends after its password was replaced by one that nobody knows: so whatever a crash leaves, no
// former borrower knows the password of the next.
//
// An account belongs to one static role or one library: "account/..." has which. All that changes accounts follows each
// other in a mount.
package ldapsecrets

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/directory"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount. Made with New.
type Engine struct {
	elsewhere.Stepper
	Config
	desk *directory.Desk
}

// Config is what an Engine is made of.
type Config struct {
	// TTLs are the default and the longest lifetime of the mount.
	TTLs func() (standard, longest time.Duration)
	// Password draws one by a named policy; nil: there are none.
	Password func(ctx context.Context, policy string) (string, error)
}

// New makes the engine of a mount.
func New(cfg Config) *Engine { return &Engine{Config: cfg, desk: directory.New()} }

var (
	_ engine.Leaser  = (*Engine)(nil)
	_ engine.Tender  = (*Engine)(nil)
	_ engine.Stepper = (*Engine)(nil)
	_ engine.Router  = (*Engine)(nil)
)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{} }

// Serial implements engine.Engine: what changes accounts follows each other, as do changes of one dynamic role.
func (*Engine) Serial(r *secrets.Request) string {
	kind, _, _ := strings.Cut(r.Rest, "/")
	switch {
	case !r.Op.Writes():
		return ""
	case kind == "role" || kind == "wal":
		return r.Rest
	}
	return "accounts"
}

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	kind, name, _ := strings.Cut(r.Rest, "/")
	if records[kind] && name != "" && storage.CheckKey(r.Rest) == nil && action(kind, name) == "" {
		_, exists, err = view.Get(ctx, r.Rest)
		return exists, true, err
	}
	return false, false, nil
}

// records are the kinds that have records under their own path.
var records = map[string]bool{"role": true, "static-role": true, "library": true}

// Routes implements engine.Router.
func (*Engine) Routes() []engine.Route {
	crud := []secrets.Operation{secrets.Read, secrets.Update, secrets.Delete}
	read, write, list := []secrets.Operation{secrets.Read}, []secrets.Operation{secrets.Update},
		[]secrets.Operation{secrets.List}
	return []engine.Route{{Path: "config", Ops: crud}, {Path: "rotate-root", Ops: write},
		{Path: "static-role", Ops: list}, {Path: "static-role/{name}", Ops: crud}, {Path: "static-cred/{name}", Ops: read},
		{Path: "rotate-role/{name}", Ops: write},
		{Path: "role", Ops: list}, {Path: "role/{name}", Ops: crud}, {Path: "creds/{name}", Ops: read},
		{Path: "library", Ops: list}, {Path: "library/{name}", Ops: crud}, {Path: "library/{name}/status", Ops: read},
		{Path: "library/{name}/check-out", Ops: write}, {Path: "library/{name}/check-in", Ops: write},
		{Path: "library/manage/{name}/check-in", Ops: write}}
}

// call is one request with what it needs at hand.
type call struct {
	context.Context
	e    *Engine
	view engine.View
	r    *secrets.Request
	f    *secrets.Fields
	name string
}

type handler = func(*call) (*secrets.Response, error)

var routes = map[string]map[secrets.Operation]handler{
	"config": {secrets.Read: (*call).readConfig, secrets.Update: (*call).writeConfig,
		secrets.Delete: (*call).deleteConfig},
	"rotate-root": {secrets.Update: (*call).rotateRoot},
	"static-role": {secrets.Read: (*call).readStatic, secrets.Update: (*call).writeStatic,
		secrets.Delete: (*call).deleteStatic, secrets.List: (*call).list},
	"static-cred": {secrets.Read: (*call).staticCred},
	"rotate-role": {secrets.Update: (*call).rotateStatic},
	"role": {secrets.Read: (*call).readRole, secrets.Update: (*call).writeRole, secrets.Delete: (*call).remove,
		secrets.List: (*call).list},
	"creds": {secrets.Read: (*call).creds},
	"library": {secrets.Read: (*call).readLibrary, secrets.Update: (*call).writeLibrary,
		secrets.Delete: (*call).deleteLibrary, secrets.List: (*call).list},
	"library/status":    {secrets.Read: (*call).status},
	"library/check-out": {secrets.Update: (*call).checkOut},
	"library/check-in":  {secrets.Update: checkIn},
	"library/manage":    {secrets.Update: manageCheckIn},
	"wal":               {secrets.Update: (*call).drop},
	"loan":              {secrets.Update: (*call).endLoan},
}

// action is what is asked of a library, "" for the library itself.
func action(kind, name string) string {
	if kind != "library" {
		return ""
	}
	for _, what := range []string{"status", "check-out", "check-in"} {
		if of, is := strings.CutSuffix(name, "/"+what); is && of != "" {
			if what == "check-in" && strings.HasPrefix(of, "manage/") {
				return "manage"
			}
			return what
		}
	}
	return ""
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	rest := strings.TrimSuffix(r.Rest, "/")
	kind, name, _ := strings.Cut(rest, "/")
	if what := action(kind, name); what != "" && r.Op != secrets.List {
		kind += "/" + what
		name = name[:strings.LastIndexByte(name, '/')]
		if what == "manage" {
			name = strings.TrimPrefix(name, "manage/")
		}
	}
	on, plain := routes[kind], kind == "config" || kind == "rotate-root"
	switch {
	case on == nil, plain != (name == "") && r.Op != secrets.List, (kind == "wal" || kind == "loan") && !r.Due:
		return nil, elsewhere.ErrNoPath
	case name != "" && storage.CheckKey(rest) != nil, kind == "library" && strings.HasPrefix(name+"/", "manage/"):
		return nil, elsewhere.ErrNoPath
	}
	op := r.Op
	if op == secrets.Create {
		op = secrets.Update
	}
	do := on[op]
	if do == nil {
		return nil, elsewhere.ErrUnsupported
	}
	return do(&call{ctx, e, view, r, f, name})
}

// list lists the objects of a kind, of a folder of them where their names have any.
func (c *call) list() (*secrets.Response, error) {
	return elsewhere.List(c, c.view, strings.TrimSuffix(c.r.Rest, "/")+"/", c.f)
}

func (c *call) remove() (*secrets.Response, error) {
	return &secrets.Response{Ops: []secrets.Op{storage.Delete(c.r.Rest)}}, nil
}

// account is whose an account of the directory is, under "account/<its name>".
type account struct {
	Owner string `json:"owner"` // static-role/NAME or library/NAME
	User  string `json:"user"`
	Loan  *loan  `json:"loan,omitempty"` // of a library, while it is lent
}

func accountKey(user string) string {
	return "account/" + base64.RawURLEncoding.EncodeToString([]byte(strings.ToLower(user)))
}

// claim finds out whether an account may become an owner's.
func (c *call) claim(user, owner string) (*account, error) {
	a, err := elsewhere.Find[account](c, c.view, accountKey(user))
	if err == nil && a != nil && a.Owner != owner {
		err = elsewhere.Invalid("%q is already managed by %s", user, a.Owner)
	}
	return a, err
}

// token names a borrower by the token, which nobody can read from it.
func token(r *secrets.Request) string {
	sum := sha256.Sum256([]byte(r.Token))
	return hex.EncodeToString(sum[:])
}

// Due implements engine.Tender: remnants of crashes to end, passwords to change.
func (e *Engine) Due(ctx context.Context, view engine.View, now time.Time) (out []*secrets.Request, err error) {
	for _, what := range []string{walPrefix, rotatePrefix, loanPrefix} {
		due, err := elsewhere.Due(ctx, view, what, now)
		if err != nil {
			return nil, err
		}
		for _, r := range due {
			ask := &secrets.Request{Op: secrets.Update, Rest: r.Key}
			if what == rotatePrefix {
				_, name, _ := strings.Cut(strings.TrimPrefix(r.Key, what), "/")
				ask.Rest = "rotate-role/" + name
				if ask.Body, err = json.Marshal(map[string]string{"entry": r.Key}); err != nil {
					return nil, err
				}
			}
			out = append(out, ask)
		}
	}
	return out, nil
}
