package system

import (
	"context"
	"encoding/json"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/task"
)

// System answers sys/ by its rows, the first that fits. What must answer while sealed is no engine's.
type System struct {
	task.Own
	Rows []Row
	// Elsewhere answers paths that have no row: of the cluster and its storage. Found is false where the path is nobody's.
	Elsewhere func(ctx context.Context, op secrets.Operation, path string, f *secrets.Fields) (data any,
		found bool, err error)
}

// Special implements engine.Engine.
func (*System) Special() engine.Special {
	return engine.Special{
		Open: []string{"mfa/validate", "wrapping/unwrap", "wrapping/lookup", "wrapping/rewrap", "replication/status",
			"replication/dr/status", "replication/performance/status"},
		Token:   []string{"internal/ui/mounts", "internal/ui/mounts/*", "internal/ui/namespaces"},
		Visible: []string{"internal/ui/mounts"},
		Protected: []string{"pprof", "pprof/*", "leases/tidy", "namespaces/api-lock/*", "plugins/catalog/*",
			"plugins/reload/*", "config/cors", "config/auditing/*", "auth/*", "rotate", "rotate/*", "storage/raft/*", "rekey/*",
			"rekey-recovery-key/*", "generate-root/*", "seal", "step-down", "audit", "audit/*", "remount", "raw/*",
			"leases/lookup/*", "leases/revoke-prefix/*", "leases/revoke-force/*", "leases/revocation/*", "revoke-prefix/*",
			"revoke-force/*"}}
}

// Row is one of the system's paths. Path ends in '/' where a name follows.
type Row struct {
	Path                   string
	Read, Write, List, Del func(*Call) (any, error)
	Scan, Patch            func(*Call) (any, error)
	InNamespaces           bool // it is there in every namespace, and tells and changes what is of that one alone
}

// Call is a request to the system with what it found.
type Call struct {
	context.Context
	*task.Task
	Name string // what follows the row's path
	F    *secrets.Fields
}

// Answer implements task.Handler.
func (s *System) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	rest := r.Rest
	if r.Op == secrets.List || r.Op == secrets.Scan {
		rest = strings.TrimSuffix(rest, "/")
	}
	for i := range s.Rows {
		row := &s.Rows[i]
		name, below := strings.CutPrefix(rest, row.Path)
		if !(rest == row.Path || (below && strings.HasSuffix(row.Path, "/") && name != "")) {
			continue
		}
		if t.Tables.Space != nil && !row.InNamespaces {
			return nil, errRootOnly
		}
		do := row.of(r.Op)
		if do == nil {
			return nil, ErrUnsupported
		}
		return rowAnswer(do(&Call{Context: ctx, Task: t, Name: name, F: f}))
	}
	if t.Tables.Space != nil {
		return nil, errRootOnly
	}
	if s.Elsewhere != nil {
		data, found, err := s.Elsewhere(ctx, r.Op, rest, f)
		if err != nil || found {
			return rowAnswer(data, err)
		}
	}
	return nil, ErrNotHere
}

// of is what answers an operation; nil for nothing.
func (r *Row) of(op secrets.Operation) func(*Call) (any, error) {
	switch op {
	case secrets.Read:
		return r.Read
	case secrets.Create, secrets.Update:
		return r.Write
	case secrets.List:
		return r.List
	case secrets.Delete:
		return r.Del
	case secrets.Scan:
		return r.Scan
	case secrets.Patch:
		return r.Patch
	}
	return nil
}

// errRootOnly refuses what there is in the root namespace alone.
var errRootOnly = errkind.New(errkind.Invalid, "operation unavailable in namespaces")

// ErrUnsupported refuses an operation at a path that has others; ErrNotHere a path that is nobody's.
var (
	ErrUnsupported = errkind.New(errkind.Conflict, "unsupported operation")
	ErrNotHere     = errkind.New(errkind.NotFound, "unsupported path")
)

// rowAnswer is a row's data as an answer.
func rowAnswer(data any, err error) (*secrets.Response, error) {
	if err != nil || data == nil {
		return &secrets.Response{}, err
	}
	if whole, ok := data.(*secrets.Response); ok {
		return whole, nil
	}
	if raw, ok := data.(json.RawMessage); ok { // as it came
		return &secrets.Response{Data: raw}, nil
	}
	text, err := json.Marshal(data)
	return &secrets.Response{Data: text}, err
}

// Routes implements engine.Router.
func (s *System) Routes() []engine.Route {
	var out []engine.Route
	open := s.Special().Open
	for _, r := range s.Rows {
		route := engine.Route{Path: r.Path, Open: engine.Matches(open, r.Path)}
		if strings.HasSuffix(r.Path, "/") {
			route.Path += "{path}"
		}
		for _, op := range []secrets.Operation{secrets.Read, secrets.Update, secrets.List, secrets.Delete,
			secrets.Patch} {
			if r.of(op) != nil {
				route.Ops = append(route.Ops, op)
			}
		}
		out = append(out, route)
	}
	return out
}
