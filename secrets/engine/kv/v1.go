// Package kv keeps what users write under paths: version 1 as it came, version
// 2 with former versions, soft deletion and check-and-set (contract 4.1, 4.2).
package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// V1 is version 1: a path holds one object, which a write replaces. Records are
// the bodies of the requests, byte for byte, so a read encodes nothing.
type V1 struct {
	// DefaultTTL is what a read gives as lease_duration: the mount's default.
	DefaultTTL func() time.Duration
}

var _ engine.Engine = V1{}

var errNotFound = errkind.New(errkind.NotFound, "")

// Special implements engine.Engine.
func (V1) Special() engine.Special { return engine.Special{} }

// Serial implements engine.Engine: the last write wins, so writes need not wait for each other.
func (V1) Serial(*secrets.Request) string { return "" }

// Exists implements engine.Engine.
func (V1) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	if r.Rest == "" || strings.HasSuffix(r.Rest, "/") {
		return false, true, nil
	}
	_, exists, err = view.Get(ctx, r.Rest)
	return exists, true, err
}

// Handle implements engine.Engine.
func (e V1) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	if r.Op == secrets.List {
		return listKeys(ctx, view, "", r)
	}
	if err := checkPath(r.Rest); err != nil {
		return nil, err
	}
	switch r.Op {
	case secrets.Read:
		value, ok, err := view.Get(ctx, r.Rest)
		if err != nil || !ok {
			return nil, orNotFound(err)
		}
		return &secrets.Response{Data: value, LeaseTTL: e.ttl(value)}, nil
	case secrets.Create, secrets.Update:
		if err := checkObject(r.Body); err != nil {
			return nil, err
		}
		return &secrets.Response{Ops: []storage.Op{storage.Put(r.Rest, r.Body)}}, nil
	case secrets.Delete:
		return &secrets.Response{Ops: []storage.Op{storage.Delete(r.Rest)}}, nil
	}
	return nil, errkind.New(errkind.Conflict, "unsupported operation")
}

// ttl is the lease_duration of a value: its own "ttl" or "lease" where it reads as a duration.
func (e V1) ttl(value []byte) time.Duration {
	if bytes.Contains(value, []byte(`"ttl"`)) || bytes.Contains(value, []byte(`"lease"`)) {
		f, err := secrets.ParseFields(value)
		for _, name := range []string{"ttl", "lease"} {
			if d := f.Duration(name, 0); err == nil && f.Has(name) && f.Err() == nil && d > 0 {
				return d
			}
		}
	}
	return e.DefaultTTL()
}

func orNotFound(err error) error {
	if err != nil {
		return err
	}
	return errNotFound
}

func checkPath(rest string) error {
	if rest == "" {
		return errkind.New(errkind.Invalid, "missing path")
	}
	if strings.HasSuffix(rest, "/") {
		return errkind.New(errkind.Invalid, "cannot write to a path ending in '/'")
	}
	return errkind.E(errkind.Invalid, "", storage.CheckKey(rest))
}

// checkObject demands a JSON object with something in it.
func checkObject(body []byte) error {
	trimmed := bytes.TrimSpace(body)
	switch {
	case len(trimmed) == 0 || string(trimmed) == "null":
		return errkind.New(errkind.Invalid, "missing data fields")
	case trimmed[0] != '{' || !json.Valid(trimmed):
		return errkind.New(errkind.Invalid, "failed to parse JSON input: an object is expected")
	case len(bytes.TrimSpace(trimmed[1:len(trimmed)-1])) == 0:
		return errkind.New(errkind.Invalid, "missing data fields")
	}
	return nil
}

// listKeys answers with the folder that the request names, below prefix.
func listKeys(ctx context.Context, view engine.View, prefix string, r *secrets.Request) (*secrets.Response, error) {
	names, err := listed(ctx, view, prefix, r, 0)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(map[string][]string{"keys": names})
	return &secrets.Response{Data: data}, err
}

// listed lists that folder: what the request asks for of it, and no more than most (0: all).
func listed(ctx context.Context, view engine.View, prefix string, r *secrets.Request, most int) ([]string, error) {
	if folder := strings.TrimSuffix(r.Rest, "/"); folder != "" {
		if err := storage.CheckKey(folder); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
		prefix += folder + "/"
	}
	q, err := r.Fields()
	if err != nil {
		return nil, err
	}
	after, limit := q.String("after"), max(q.Int("limit", 0), 0)
	if err := q.Err(); err != nil {
		return nil, err
	}
	if most > 0 && (limit == 0 || limit > most) {
		limit = most
	}
	names, err := view.List(ctx, prefix, after, limit)
	if err == nil && len(names) == 0 {
		err = errNotFound
	}
	return names, err
}
