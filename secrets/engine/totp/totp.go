// Package totp makes and checks one-time passwords by time (RFC 6238; contract 4.8): for people's second factor, with
// keys that it generates, and in the place of an authenticator app, with keys that others gave.
//
// A code is good once. The steps of time whose codes were taken are stored with the key, so a code that was seen is
// refused after a failover too. What a step is belongs to the key: changing a key forgets its steps.
package totp

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/onetime"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount. The zero value is ready.
type Engine struct{ keys record.Cache[*key] }

var _ engine.Engine = (*Engine)(nil)

// key is what is stored of a key.
type key = onetime.Key

var (
	errUnsupported = errkind.New(errkind.Conflict, "unsupported operation")
	errNoPath      = errkind.New(errkind.NotFound, "unsupported path")
	errNotFound    = errkind.New(errkind.NotFound, "")
)

func invalid(text string) error { return errkind.New(errkind.Invalid, text) }

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{} }

// Serial implements engine.Engine: what changes a key, and whose codes are taken, follow each other.
func (*Engine) Serial(r *secrets.Request) string {
	if _, name, ok := strings.Cut(r.Rest, "/"); ok && r.Op.Writes() {
		return "key " + name
	}
	return ""
}

// Exists implements engine.Engine.
func (*Engine) Exists(context.Context, engine.View, *secrets.Request) (exists, ok bool, err error) {
	return false, false, nil
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	kind, name, deeper := strings.Cut(strings.TrimSuffix(r.Rest, "/"), "/")
	if kind == "keys" && !deeper {
		if r.Op != secrets.List {
			return nil, errUnsupported
		}
		return list(ctx, view, r)
	}
	if !deeper || strings.Contains(name, "/") || (kind != "keys" && kind != "code") {
		return nil, errNoPath
	}
	if err := storage.CheckKey("key/" + name); err != nil {
		return nil, invalid("key name: " + err.Error())
	}
	write := r.Op == secrets.Create || r.Op == secrets.Update
	switch {
	case kind == "keys" && write:
		return create(name, r)
	case kind == "keys" && r.Op == secrets.Read:
		return e.show(ctx, view, name)
	case kind == "keys" && r.Op == secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{{Key: "key/" + name}, {Key: "used/" + name}}}, nil
	case kind == "code" && r.Op == secrets.Read:
		return e.code(ctx, view, name, r.Now)
	case kind == "code" && write:
		return e.check(ctx, view, name, r)
	}
	return nil, errUnsupported
}

func list(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	names, err := view.List(ctx, "key/", f.String("after"), max(f.Int("limit", 0), 0))
	if err == nil {
		err = f.Err()
	}
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errNotFound
	}
	return answer(map[string]any{"keys": names})
}

func answer(v any) (*secrets.Response, error) {
	data, err := json.Marshal(v)
	return &secrets.Response{Data: data}, err
}

// create makes a key, or puts another one in its place.
func create(name string, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	ask := order{key: key{Issuer: f.String("issuer"), Account: f.String("account_name"), Secret: f.String("key"),
		Period: int(f.Duration("period", 30*time.Second) / time.Second), Algorithm: f.String("algorithm"),
		Digits: f.Int("digits", 6), Skew: f.Int("skew", 1)},
		generate: f.Bool("generate", false), exported: f.Bool("exported", true), url: f.String("url"),
		keySize: f.Int("key_size", 20), qrSize: f.Int("qr_size", 200)}
	if ask.Algorithm == "" {
		ask.Algorithm = "SHA1"
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	shown, err := ask.fill()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(ask.key)
	if err != nil {
		return nil, err
	}
	resp := &secrets.Response{}
	if shown != nil {
		if resp, err = answer(shown); err != nil {
			return nil, err
		}
	}
	resp.Ops = []secrets.Op{{Key: "key/" + name, Value: raw}, {Key: "used/" + name}}
	return resp, nil
}

// order is what a caller wants of a key.
type order struct {
	key
	generate, exported bool
	url                string
	keySize, qrSize    int
}

// fill checks the order and completes its key. shown is what the caller is told of a generated key, or nil.
func (o *order) fill() (shown map[string]any, err error) {
	switch {
	case o.generate && o.Secret != "":
		return nil, invalid("a key should not be passed if generate is true")
	case o.generate && o.url != "":
		return nil, invalid("a url should not be passed if generate is true")
	case o.url != "":
		if err := o.readURL(); err != nil {
			return nil, err
		}
	}
	if err := o.judge(); err != nil {
		return nil, err
	}
	if !o.generate {
		return nil, o.readSecret()
	}
	edge := o.qrSize
	if !o.exported {
		edge = 0
	}
	link, picture, err := o.Generate(o.keySize, edge)
	if err != nil || !o.exported {
		return nil, err
	}
	shown = map[string]any{"url": link}
	if picture != "" {
		shown["barcode"] = picture
	}
	return shown, nil
}

// readURL takes what an otpauth:// URL says; it counts before the other parameters.
func (o *order) readURL() error {
	u, err := url.Parse(o.url)
	if err != nil || u.Scheme != "otpauth" || u.Host != "totp" {
		return invalid("the url value is not valid: it must begin with otpauth://totp/")
	}
	q := u.Query()
	label := strings.TrimPrefix(u.Path, "/")
	if issuer, account, ok := strings.Cut(label, ":"); ok {
		o.Issuer, o.Account = issuer, strings.TrimSpace(account)
	} else if label != "" {
		o.Account = label
	}
	if issuer := q.Get("issuer"); issuer != "" {
		o.Issuer = issuer
	}
	o.Secret = q.Get("secret")
	if o.Secret == "" {
		return invalid("the key value is required in the url")
	}
	if a := q.Get("algorithm"); a != "" {
		o.Algorithm = strings.ToUpper(a)
	}
	for name, at := range map[string]*int{"period": &o.Period, "digits": &o.Digits} {
		if text := q.Get(name); text != "" {
			if *at, err = strconv.Atoi(text); err != nil {
				return invalid("the " + name + " value of the url is no number")
			}
		}
	}
	return nil
}

func (o *order) judge() error {
	if err := o.Check(); err != nil {
		return err
	}
	size := 1 // of a key that was given: readSecret judges it
	if o.generate {
		size = o.keySize
	}
	switch {
	case o.generate && o.Issuer == "":
		return invalid("the issuer value is required")
	case o.generate && o.Account == "":
		return invalid("the account_name value is required")
	case !o.generate && o.Secret == "":
		return invalid("the key value is required")
	}
	return onetime.CheckSizes(size, o.qrSize)
}

// readSecret brings a key that was given into the form in which it is stored.
func (o *order) readSecret() error {
	o.Secret = strings.ToUpper(strings.TrimRight(strings.ReplaceAll(o.Secret, " ", ""), "="))
	if len(o.Secret) > 2*onetime.MaxKeyBytes {
		return invalid("the key value is longer than 1024 bytes")
	}
	if _, err := o.Code(0); err != nil {
		return invalid("invalid key value: it must be base32")
	}
	return nil
}

func (e *Engine) read(ctx context.Context, view engine.View, name string) (*key, bool, error) {
	return e.keys.Get(ctx, view, "key/"+name, record.ReadJSON[key])
}

func (e *Engine) show(ctx context.Context, view engine.View, name string) (*secrets.Response, error) {
	k, ok, err := e.read(ctx, view, name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errNotFound
	}
	return answer(map[string]any{"issuer": k.Issuer, "account_name": k.Account, "period": k.Period,
		"algorithm": k.Algorithm, "digits": k.Digits})
}

func (e *Engine) known(ctx context.Context, view engine.View, name string) (*key, error) {
	k, ok, err := e.read(ctx, view, name)
	if err == nil && !ok {
		err = invalid("unknown key: " + name)
	}
	return k, err
}

func (e *Engine) code(ctx context.Context, view engine.View, name string, now time.Time) (*secrets.Response, error) {
	k, err := e.known(ctx, view, name)
	if err != nil {
		return nil, err
	}
	code, err := k.Code(k.Step(now))
	if err != nil {
		return nil, errkind.E(errkind.Internal, "make a code", err)
	}
	return answer(map[string]any{"code": code})
}

// check tells whether a code is good, and takes it.
func (e *Engine) check(ctx context.Context, view engine.View, name string, r *secrets.Request) (*secrets.Response,
	error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	code := f.String("code")
	if err := f.Err(); err != nil {
		return nil, err
	}
	if code == "" {
		return nil, invalid("the code value is required")
	}
	k, err := e.known(ctx, view, name)
	if err != nil {
		return nil, err
	}
	used, err := taken(ctx, view, name)
	if err != nil {
		return nil, err
	}
	got, after, err := k.Take(code, used, r.Now)
	if err != nil {
		return nil, err
	}
	if got == onetime.Again {
		return nil, invalid("code already used; wait until the next time period")
	}
	resp, err := answer(map[string]any{"valid": got == onetime.Good})
	if err != nil || got != onetime.Good {
		return resp, err
	}
	raw, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	resp.Ops = []secrets.Op{{Key: "used/" + name, Value: raw}}
	return resp, nil
}

// taken are the steps whose codes were taken of late.
func taken(ctx context.Context, view engine.View, name string) ([]uint64, error) {
	raw, ok, err := view.Get(ctx, "used/"+name)
	if err != nil || !ok {
		return nil, err
	}
	list, err := record.ReadJSON[[]uint64](raw)
	if err != nil {
		return nil, err
	}
	return *list, nil
}
