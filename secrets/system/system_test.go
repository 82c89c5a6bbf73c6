package system

import (
	"context"
	"errors"
	"testing"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
)

// A path is answered by the row that names it, or by the one that it lies below; what has no row is asked for
// elsewhere.
func TestRows(t *testing.T) {
	says := func(what string) func(*Call) (any, error) {
		return func(c *Call) (any, error) { return what + c.Name, nil }
	}
	s := &System{Rows: []Row{{Path: "a", Read: says("a")}, {Path: "a/", Read: says("below "), List: says("list ")}}}
	var scope tables.Scope
	ask := func(op secrets.Operation, rest string) (string, error) {
		r := &secrets.Request{Op: op, Rest: rest}
		resp, err := s.Answer(t.Context(), &task.Task{Request: r, Tables: &tables.Tables{Scope: scope}}, r)
		if err != nil {
			return "", err
		}
		return string(resp.Data), nil
	}
	for path, want := range map[string]string{"a": `"a"`, "a/b": `"below b"`, "a/b/c": `"below b/c"`} {
		if got, err := ask(secrets.Read, path); got != want || err != nil {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	if got, err := ask(secrets.List, "a/b/"); got != `"list b"` || err != nil {
		t.Errorf("a list: %s, %v", got, err)
	}
	if _, err := ask(secrets.Delete, "a"); err != ErrUnsupported {
		t.Errorf("a delete: %v", err)
	}
	if _, err := ask(secrets.Read, "ab"); err != ErrNotHere {
		t.Errorf("nobody's path: %v", err)
	}
	away := errors.New("away")
	s.Elsewhere = func(_ context.Context, _ secrets.Operation, path string, _ *secrets.Fields) (any, bool, error) {
		return nil, path == "raft", away
	}
	if _, err := ask(secrets.Read, "raft"); !errors.Is(err, away) {
		t.Errorf("elsewhere: %v", err)
	}
	// a namespace has the rows that say so, and nothing from elsewhere
	scope.Space = &tables.Space{}
	for _, path := range []string{"a", "ab", "raft"} {
		if _, err := ask(secrets.Read, path); err != errRootOnly {
			t.Errorf("%s in a namespace: %v", path, err)
		}
	}
	s.Rows[0].InNamespaces = true
	if got, err := ask(secrets.Read, "a"); got != `"a"` || err != nil {
		t.Errorf("a row of namespaces: %s, %v", got, err)
	}
}
