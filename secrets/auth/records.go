package auth

import (
	"context"
	"encoding/json"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// What methods answer to what they have not or cannot do.
var (
	ErrNotFound    = errkind.New(errkind.NotFound, "")
	ErrUnsupported = errkind.New(errkind.Conflict, "unsupported operation")
	ErrPath        = errkind.New(errkind.NotFound, "unsupported path")
)

// Find returns a method's record under prefix and name, or nil.
func Find[T any](ctx context.Context, v engine.View, prefix, name string) (*T, error) {
	if err := storage.CheckKey(prefix + name); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	raw, ok, err := v.Get(ctx, prefix+name)
	if err != nil || !ok {
		return nil, err
	}
	out := new(T)
	if json.Unmarshal(raw, out) != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the record %s%s is not what was stored", prefix, name)
	}
	return out, nil
}

// Exists answers engine.Engine's question about a path for a method whose records are under prefix.
func Exists[T any](ctx context.Context, v engine.View, prefix, path string) (exists, ok bool, err error) {
	name, is := strings.CutPrefix(path, prefix)
	if !is || name == "" {
		return false, false, nil
	}
	found, err := Find[T](ctx, v, prefix, name)
	return found != nil, true, err
}

// Serial has changes of one record follow each other; logins wait for nobody.
func Serial(r *secrets.Request) string {
	if r.Op.Writes() && r.Rest != "login" {
		return r.Rest
	}
	return ""
}

// StillThere returns the record by which a login was made, for a renewal. That it is gone is an error.
func StillThere[T any](ctx context.Context, v engine.View, prefix, name string) (*T, error) {
	found, err := Find[T](ctx, v, prefix, name)
	if err == nil && found == nil {
		err = Gone("role", name)
	}
	return found, err
}

// Gone is the error of a renewal whose user or role is not there any more.
func Gone(what, name string) error {
	return errkind.Errorf(errkind.Invalid, "%s %q is gone: log in again", what, name)
}

// Keep answers a write with the operation that stores a record.
func Keep(key string, record any) (*secrets.Response, error) {
	raw, err := json.Marshal(record)
	return &secrets.Response{Ops: []secrets.Op{storage.Put(key, raw)}}, err
}

// Record is a named thing of a method: a role, a certificate.
type Record interface {
	Read(f *secrets.Fields) error // takes what was given and refuses what cannot be
	Show() map[string]any
}

// Crud answers create, read, update, delete and list of the records under prefix. fresh is what a new one begins as.
func Crud[T any, P interface {
	*T
	Record
}](ctx context.Context, v engine.View, r *secrets.Request, prefix, name string, fresh P) (*secrets.Response, error) {
	if name == "" {
		if r.Op != secrets.List {
			return nil, ErrUnsupported
		}
		return Keys(v.List(ctx, prefix, "", 0))
	}
	old, err := Find[T](ctx, v, prefix, name)
	if err != nil {
		return nil, err
	}
	switch r.Op {
	case secrets.Read:
		if old == nil {
			return nil, ErrNotFound
		}
		return Data(P(old).Show())
	case secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(prefix + name)}}, nil
	case secrets.Create, secrets.Update:
		f, err := r.Fields()
		if err != nil {
			return nil, err
		}
		if old != nil {
			fresh = old
		}
		if err := fresh.Read(f); err != nil {
			return nil, err
		}
		return Keep(prefix+name, fresh)
	}
	return nil, ErrUnsupported
}

// Glob matches a text with a pattern in which '*' is any text.
func Glob(pattern, text string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	for ok && more {
		var part string
		if part, rest, more = strings.Cut(rest, "*"); !more {
			return strings.HasSuffix(text, part)
		}
		_, text, ok = strings.Cut(text, part)
	}
	return false
}

// Pairs reads an object of texts, also as key=value texts, which is how the command line sends them.
func Pairs(f *secrets.Fields, field string) map[string]string {
	pairs := []any{f.Any(field)}
	if list, ok := f.Any(field).([]any); ok {
		pairs = list
	}
	out := map[string]string{}
	for _, p := range pairs {
		text, ok := p.(string)
		k, v, is := strings.Cut(text, "=")
		if !ok || !is || strings.HasPrefix(strings.TrimSpace(text), "{") {
			return f.Texts(field)
		}
		out[k] = v
	}
	return out
}

// DisplayName is how a login at a mount is called.
func DisplayName(mount, name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(mount, "auth/"), "/") + "-" + name
}
