package kv

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// V2 is version 2. A path has a head ("meta/<path>") with the counters and the
// settings, and one row for each version ("ver/<hash of the path>/<number>"), so
// what a write stores does not grow with the versions that are kept.
type V2 struct{}

var _ engine.Engine = V2{}

// Special implements engine.Engine.
func (V2) Special() engine.Special { return engine.Special{} }

// Serial implements engine.Engine: writes of one path follow each other.
func (V2) Serial(r *secrets.Request) string {
	if !r.Op.Writes() {
		return ""
	}
	_, path, _ := strings.Cut(r.Rest, "/")
	return "kv " + path
}

// Exists implements engine.Engine: of data and metadata it is the head that counts.
func (V2) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	kind, path, _ := strings.Cut(r.Rest, "/")
	if (kind != "data" && kind != "metadata") || storage.CheckKey(path) != nil {
		return false, false, nil
	}
	_, exists, err = view.Get(ctx, headKey(path))
	return exists, true, err
}

// kinds are the first segments of all paths.
var kinds = []string{"config", "data", "delete", "destroy", "detailed-metadata", "metadata", "subkeys", "undelete"}

// wrongPath tells who asks as of version 1, as Vault does: clients show it beside the 404.
const wrongPath = "Invalid path for a versioned K/V secrets engine. See the API docs for the appropriate API " +
	"endpoints to use. " +
	"If using the Vault CLI, use 'vault kv get' for this operation."

// call is one request with what it needs at hand.
type call struct {
	context.Context
	view engine.View
	r    *secrets.Request
	path string
}

// Handle implements engine.Engine.
func (V2) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	kind, path, _ := strings.Cut(r.Rest, "/")
	if !slices.Contains(kinds, kind) {
		return &secrets.Response{Missing: true, Warnings: []string{wrongPath}}, nil
	}
	c := &call{ctx, view, r, path}
	if r.Op == secrets.List {
		below := *r
		below.Rest = path
		switch kind {
		case "metadata":
			return listKeys(ctx, view, "meta/", &below)
		case "detailed-metadata":
			return c.listDetailed(&below)
		}
		return nil, errUnsupported
	}
	if r.Rest == "config" {
		return c.config()
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	write := r.Op == secrets.Create || r.Op == secrets.Update
	switch {
	case kind == "data" && r.Op == secrets.Read:
		return c.read()
	case kind == "data" && write:
		return c.write()
	case kind == "data" && r.Op == secrets.Patch:
		return c.patch()
	case kind == "data" && r.Op == secrets.Delete:
		return c.mark(nil, softDelete)
	case kind == "delete" && write:
		return c.markAsked(softDelete)
	case kind == "undelete" && write:
		return c.markAsked(undelete)
	case kind == "destroy" && write:
		return c.markAsked(destroy)
	case kind == "subkeys" && r.Op == secrets.Read:
		return c.subkeys()
	case kind == "metadata" && r.Op == secrets.Read:
		return c.readMeta()
	case kind == "metadata" && write:
		return c.writeMeta(false)
	case kind == "metadata" && r.Op == secrets.Patch:
		return c.writeMeta(true)
	case kind == "metadata" && r.Op == secrets.Delete:
		return c.deleteMeta()
	}
	return nil, errUnsupported
}

var errUnsupported = errkind.New(errkind.Conflict, "unsupported operation")

// config reads and writes what holds for the whole mount.
func (c *call) config() (*secrets.Response, error) {
	s, err := c.settings()
	if err != nil {
		return nil, err
	}
	if c.r.Op == secrets.Read {
		return answer(map[string]any{"max_versions": s.MaxVersions, "cas_required": s.CASRequired,
			"delete_version_after": s.DeleteAfter.String(), "metadata_cas_required": s.MetaCASRequired})
	}
	f, err := c.r.Fields()
	if err != nil {
		return nil, err
	}
	s.MaxVersions, s.CASRequired = f.Int("max_versions", s.MaxVersions), f.Bool("cas_required", s.CASRequired)
	s.DeleteAfter, s.MetaCASRequired = f.Duration("delete_version_after", s.DeleteAfter),
		f.Bool("metadata_cas_required", s.MetaCASRequired)
	if err := f.Err(); err != nil {
		return nil, err
	}
	if s.MaxVersions < 0 {
		return nil, errkind.New(errkind.Invalid, `field "max_versions": must not be negative`)
	}
	return store("config", s)
}

// settings are those of a mount.
type settings struct {
	MaxVersions     int           `json:"max_versions"`
	CASRequired     bool          `json:"cas_required"`
	DeleteAfter     time.Duration `json:"delete_version_after"`
	MetaCASRequired bool          `json:"metadata_cas_required,omitempty"`
}

func (c *call) settings() (s settings, err error) {
	raw, ok, err := c.view.Get(c, "config")
	if err != nil || !ok {
		return s, err
	}
	return s, unmarshal("config", raw, &s)
}

func answer(v any) (*secrets.Response, error) {
	data, err := json.Marshal(v)
	return &secrets.Response{Data: data}, err
}

func store(key string, v any) (*secrets.Response, error) {
	op, err := put(key, v)
	return &secrets.Response{Ops: []storage.Op{op}}, err
}

func put(key string, v any) (storage.Op, error) {
	raw, err := json.Marshal(v)
	return storage.Put(key, raw), err
}

func unmarshal(key string, raw []byte, into any) error {
	return damaged(key, json.Unmarshal(raw, into))
}

func damaged(key string, err error) error {
	if err != nil {
		return errkind.Errorf(errkind.Corrupt, "the record %s is not what was stored", key)
	}
	return nil
}
