// Package transit encrypts and signs for others with keys that it never gives out unless it
// was told to (contract 4.5). A key has versions; what it made says by which: "vault:v2:...".
//
// What uses a key stores nothing: its record is kept parsed (record.Cache), and goes with the
// engine when its mount is sealed. Nonces are a drawn prefix and a counter for each version
// in memory, so that their number needs no limit (nonces).
package transit

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount.
type Engine struct {
	Keys *limit.Gate // how many RSA keys are made at once; shared between mounts

	keys     record.Cache[*key]
	settings record.Cache[*settings]

	// born are keys that requests of now make: two that both find none make the same one,
	// so that none encrypts with a key that the other replaces.
	bornMu sync.Mutex
	born   map[string]*key
	wrap   *rsa.PrivateKey // the wrapping key, until it is stored

	quiet atomic.Int64 // no key is due before (ns)
}

var _ engine.Tender = (*Engine)(nil)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{} }

// Serial implements engine.Engine: changes of one key follow each other; its use waits for nobody.
func (*Engine) Serial(r *secrets.Request) string {
	kind, rest, _ := strings.Cut(r.Rest, "/")
	switch {
	case kind == "keys" && r.Op.Writes():
		name, _, _ := strings.Cut(rest, "/")
		return "key " + name
	case kind == "restore", kind == "wrapping_key":
		return kind + " " + rest
	}
	return ""
}

// Exists implements engine.Engine: who encrypts by a key that is not there makes it, and needs the right to create.
func (e *Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	kind, name, _ := strings.Cut(r.Rest, "/")
	if kind != "encrypt" || storage.CheckKey("key/"+name) != nil {
		return false, false, nil
	}
	_, exists, err = view.Get(ctx, "key/"+name)
	return exists, true, err
}

// call is one request with what it needs at hand.
type call struct {
	context.Context
	e    *Engine
	view engine.View
	r    *secrets.Request
	f    *secrets.Fields
	name string
	more []string // further segments of the path
	ops  []secrets.Op
}

type handler = func(*call) (*secrets.Response, error)

// by is a handler of those that see a request from one side: of keys, of signatures and so on.
func by[N interface{ ~struct{ *call } }](do func(N) (*secrets.Response, error)) handler {
	return func(c *call) (*secrets.Response, error) { return do(N{c}) }
}

// users are the paths "<verb>/<key>[/...]" that are written to.
var users = map[string]handler{
	"encrypt": (*call).encrypt, "decrypt": (*call).decrypt, "rewrap": (*call).rewrap, "hmac": by(signing.hmac),
	"sign": by(signing.sign), "verify": by(signing.verify),
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &call{Context: ctx, e: e, view: view, r: r, f: f}
	do, err := c.route()
	if err != nil {
		return nil, err
	}
	if c.name != "" {
		if err := storage.CheckKey("key/" + c.name); err != nil {
			return nil, invalid("key name: %v", err)
		}
	}
	resp, err := do(c)
	if err != nil {
		return nil, err
	}
	resp.Ops = append(resp.Ops, c.ops...)
	return resp, nil
}

var (
	errUnsupported = errkind.New(errkind.Conflict, "unsupported operation")
	errNoPath      = errkind.New(errkind.NotFound, "unsupported path")
	errNotFound    = errkind.New(errkind.NotFound, "")
	errNoKey       = errkind.New(errkind.Invalid, "encryption key not found")
)

// route finds what answers, and sets the key's name and what follows it.
func (c *call) route() (handler, error) {
	parts := strings.Split(strings.TrimSuffix(c.r.Rest, "/"), "/")
	write := c.r.Op == secrets.Create || c.r.Op == secrets.Update
	verb := parts[0]
	if len(parts) > 1 {
		c.name, c.more = parts[1], parts[2:]
	}
	n := len(parts)
	if do := users[verb]; do != nil && n > 1 {
		if verb == "encrypt" || verb == "decrypt" || verb == "rewrap" {
			if n > 2 {
				return nil, errNoPath
			}
		} else if n > 3 {
			return nil, errNoPath
		}
		return only(write, do)
	}
	switch {
	case verb == "keys" && n == 1:
		return only(c.r.Op == secrets.List, by(keyring.list))
	case verb == "keys" && n == 2:
		switch {
		case write:
			return by(keyring.create), nil
		case c.r.Op == secrets.Read:
			return by(keyring.read), nil
		case c.r.Op == secrets.Delete:
			return by(keyring.delete), nil
		}
		return nil, errUnsupported
	case verb == "keys" && n == 3 && changes[c.more[0]] != nil:
		return only(write, changes[c.more[0]])
	case verb == "export" && (n == 3 || n == 4):
		return only(c.r.Op == secrets.Read, by(keyring.export))
	case verb == "datakey" && n == 3:
		c.name, c.more = parts[2], parts[1:2]
		return only(write, (*call).datakey)
	case verb == "backup" && n == 2:
		return only(c.r.Op == secrets.Read, by(keyring.backup))
	case verb == "restore" && n <= 2:
		return only(write, by(keyring.restore))
	case verb == "wrapping_key" && n == 1:
		return only(c.r.Op == secrets.Read, by(imports.wrappingKey))
	case verb == "random" && n <= 3:
		c.name, c.more = "", parts[1:]
		return only(write || c.r.Op == secrets.Read, (*call).random)
	case verb == "hash" && n <= 2:
		c.name, c.more = "", parts[1:]
		return only(write, (*call).hash)
	case c.r.Rest == "config/keys":
		c.name = ""
		return only(write || c.r.Op == secrets.Read, (*call).config)
	case verb == "cache-config" && n == 1:
		return only(write || c.r.Op == secrets.Read, (*call).cacheConfig)
	}
	return nil, errNoPath
}

func only(ok bool, do handler) (handler, error) {
	if !ok {
		return nil, errUnsupported
	}
	return do, nil
}

// rotationLook is how often keys are looked through for those that are due: periods are an hour at least.
const rotationLook = time.Minute

// Due implements engine.Tender: the keys whose auto_rotate_period is over.
func (e *Engine) Due(ctx context.Context, view engine.View, now time.Time) ([]*secrets.Request, error) {
	if now.UnixNano() < e.quiet.Load() {
		return nil, nil
	}
	records, err := view.Scan(ctx, rotatePrefix, rotateKey(now.Add(1), ""), 16)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		e.quiet.Store(now.Add(rotationLook).UnixNano())
	}
	var out []*secrets.Request
	for _, r := range records {
		_, name, _ := strings.Cut(strings.TrimPrefix(r.Key, rotatePrefix), "/")
		out = append(out, &secrets.Request{Op: secrets.Update, Rest: "keys/" + name + "/rotate",
			Body: []byte(`{"entry":` + string(quoted(r.Key)) + `}`)})
	}
	return out, nil
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // of a text: cannot be
	}
	return b
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

func answer(v any) (*secrets.Response, error) {
	data, err := json.Marshal(v)
	return &secrets.Response{Data: data}, err
}

// settings are those of the mount, under "config/keys".
type settings struct {
	DisableUpsert bool `json:"disable_upsert"`
}

func (c *call) mount() (*settings, error) {
	s, ok, err := c.e.settings.Get(c, c.view, "config/keys", func(raw []byte) (*settings, error) {
		s := &settings{}
		return s, unmarshal(raw, s)
	})
	if err != nil || !ok {
		return &settings{}, err
	}
	return s, nil
}

func unmarshal(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return errkind.Errorf(errkind.Corrupt, "a record is not what was stored")
	}
	return nil
}

func (c *call) config() (*secrets.Response, error) {
	s, err := c.mount()
	if err != nil {
		return nil, err
	}
	own := *s
	if c.r.Op != secrets.Read {
		own.DisableUpsert = c.f.Bool("disable_upsert", own.DisableUpsert)
		if err := c.f.Err(); err != nil {
			return nil, err
		}
		raw, err := json.Marshal(own)
		if err != nil {
			return nil, err
		}
		c.ops = append(c.ops, storage.Put("config/keys", raw))
	}
	return answer(own)
}

// cacheConfig is for clients of Vault's alone: how much is kept is not theirs to say here.
func (c *call) cacheConfig() (*secrets.Response, error) {
	if c.r.Op == secrets.Read {
		return answer(map[string]int{"size": 0})
	}
	if n := c.f.Int("size", 0); n < 0 || (n > 0 && n < 10) {
		return nil, invalid("size must be 0 or a value greater or equal to 10")
	}
	return &secrets.Response{}, c.f.Err()
}
