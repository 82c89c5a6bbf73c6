// Package varrows answers the rows of variables: /v1/vars and /v1/var. What a variable holds is shown to who may read
// that variable, and its answer is kept nowhere.
package varrows

import (
	"net/http"
	"regexp"
	"strings"
	"sync"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

type request = nomadrows.Request

// Rows are the rows of variables. Each asks for the right to the variables that it touches.
func Rows() []nomadrows.Row {
	const own = nomadrows.Anyone
	return []nomadrows.Row{
		{Methods: "GET", Path: "/v1/vars", Right: own, Handle: list},
		{Methods: "GET", Path: "/v1/var/*path", Right: own, Handle: read},
		{Methods: "PUT POST", Path: "/v1/var/*path", Right: own, Handle: put},
		{Methods: "DELETE", Path: "/v1/var/*path", Right: own, Handle: remove},
	}
}

// may asks for the right to a variable.
func may(q *request, namespace, path string, what nomadrows.Capability) error {
	return q.May(namespace+"/"+path, what)
}

func list(q *request) error {
	prefix := q.Query.Value("prefix")
	namespace := q.Namespace
	if namespace == nomadrows.AllNamespaces {
		namespace = ""
	}
	return q.Read(nomadrows.Whole(nomadrows.Variables, func(v nomadrows.View) (any, error) {
		return nomadrows.List(q, nomadrows.Listing[*nomadrows.VariableMeta]{
			Items: func(yield func(*nomadrows.VariableMeta) bool) {
				for m := range v.Variables(namespace) {
					if strings.HasPrefix(m.Path, prefix) && may(q, m.Namespace, m.Path, nomadrows.ListVariable) == nil &&
						!yield(m) {
						return
					}
				}
			},
			Name: func(m *nomadrows.VariableMeta) string { return m.Namespace + "/" + m.Path },
			Show: func(m *nomadrows.VariableMeta) any { return m },
		})
	}))
}

func read(q *request) error {
	path := q.Args["path"]
	if err := may(q, q.Namespace, path, nomadrows.ReadVariable); err != nil {
		return err
	}
	return q.Read(nomadrows.Reading{
		Watch:  nomadrows.Watch{Table: nomadrows.Variables},
		Secret: true,
		Index: func(v nomadrows.View) uint64 {
			if m := v.Variable(q.Namespace, path); m != nil {
				return m.ModifyIndex
			}
			return v.Index(nomadrows.Variables)
		},
		Answer: func(v nomadrows.View) (any, error) {
			one, err := q.Variables.Open(q.Ctx(), v, q.Namespace, path)
			switch {
			case err != nil:
				return nil, unsealed(err)
			case one == nil:
				return nil, nomadrows.NotFound("variable not found")
			}
			return one, nil
		},
	})
}

// unsealed is err as 503 where nothing seals.
func unsealed(err error) error {
	if errkind.Is(err, errkind.Unavailable) {
		return &nomadrows.Refusal{Status: http.StatusServiceUnavailable, Text: errkind.Text(err)}
	}
	return err
}

// MaxBytes is how much the names and values of a variable may have together.
const MaxBytes = 64 << 10

// validPath is compiled when it is first needed: a counted repetition takes long, at each start of the program.
var validPath = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-zA-Z0-9-_~/]{1,128}$`)
})

// Check judges the path of a variable that is written.
func Check(path string) error {
	parts := strings.Split(path, "/")
	switch {
	case !validPath().MatchString(path):
		return nomadrows.BadRequest("invalid path %q: it must match %s", path, validPath())
	case parts[0] == "" || parts[len(parts)-1] == "" || strings.Contains(path, "//"):
		return nomadrows.BadRequest("invalid path %q: a part of it is empty", path)
	case parts[0] != "nomad":
		return nil
	case len(parts) == 1:
		return nomadrows.BadRequest("%q is a reserved top-level directory path, but you may write variables to "+
			`"nomad/jobs", "nomad/job-templates", or below`, path)
	case parts[1] == "job-templates" && len(parts) != 3:
		return nomadrows.BadRequest(`"nomad/job-templates" is a reserved directory path, but you may write variables at ` +
			`the level below it, for example, "nomad/job-templates/template-name"`)
	case parts[1] != "jobs" && parts[1] != "job-templates":
		return nomadrows.BadRequest(`only paths at "nomad/jobs" or "nomad/job-templates" and below are valid paths under ` +
			`the top-level "nomad" directory`)
	}
	return nil
}

// checkItems judges what a variable is to hold.
func checkItems(items map[string]string) error {
	size := 0
	for name, value := range items {
		if name == "" || len(name) > 128 {
			return nomadrows.BadRequest("Items: the name %.20q must have 1 to 128 bytes", name)
		}
		size += len(name) + len(value)
	}
	switch {
	case len(items) == 0:
		return nomadrows.BadRequest("variable missing required Items object")
	case size > MaxBytes:
		return nomadrows.BadRequest("variables are limited to 64KiB in total size, not %d bytes", size)
	}
	return nil
}

func put(q *request) error {
	one, err := nomadrows.Decode[nomadrows.Variable](q)
	if err != nil {
		return err
	}
	path := q.Args["path"]
	if one.Path == "" {
		one.Path = path
	}
	if one.Namespace == "" {
		one.Namespace = q.Namespace
	}
	switch {
	case one.Path != path:
		return nomadrows.BadRequest("variable path does not match request path")
	case one.Namespace == nomadrows.AllNamespaces:
		return nomadrows.BadRequest("can not target wildcard (\"*\")namespace")
	}
	if err := Check(path); err != nil {
		return err
	}
	if err := checkItems(one.Items); err != nil {
		return err
	}
	index, err := check(q)
	if err != nil {
		return err
	}
	if err := may(q, one.Namespace, path, nomadrows.WriteVariable); err != nil {
		return err
	}
	w, err := q.Variables.PutVariable(q.Ctx(), one, index)
	switch {
	case errkind.Is(err, errkind.Conflict):
		return conflict(q, one.Namespace, path)
	case err != nil:
		return unsealed(err)
	}
	return q.Wrote(w.Index, one)
}

func remove(q *request) error {
	index, err := check(q)
	if err != nil {
		return err
	}
	path := q.Args["path"]
	if err := may(q, q.Namespace, path, nomadrows.DeleteVariable); err != nil {
		return err
	}
	w, err := q.Variables.DeleteVariable(q.Ctx(), q.Namespace, path, index)
	switch {
	case errkind.Is(err, errkind.Conflict):
		return conflict(q, q.Namespace, path)
	case err != nil:
		return unsealed(err)
	}
	q.WroteNothing(w.Index)
	return nil
}

// check reads the parameter cas.
func check(q *request) (*uint64, error) {
	text, ok := q.Query.Get("cas")
	if !ok {
		return nil, nil
	}
	n, err := q.Int("cas", -1)
	if err != nil || n < 0 || text == "" {
		return nil, nomadrows.BadRequest("can not parse cas: %q is no index", text)
	}
	index := uint64(n)
	return &index, nil
}

// conflict answers with the variable that is there; who may not read it learns its indexes alone.
func conflict(q *request, namespace, path string) error {
	v, err := q.Views.View(q.Ctx(), true)
	if err != nil {
		return err
	}
	now := &nomadrows.Variable{VariableMeta: nomadrows.VariableMeta{Namespace: namespace, Path: path}}
	if may(q, namespace, path, nomadrows.ReadVariable) == nil {
		if whole, err := q.Variables.Open(q.Ctx(), v, namespace, path); err == nil && whole != nil {
			now = whole
		}
	}
	if m := v.Variable(namespace, path); m != nil {
		now.VariableMeta = *m
	}
	body, err := q.Encode(now)
	if err != nil {
		return err
	}
	httpx.Write(q.W, q.R, http.StatusConflict, httpx.JSONType, body)
	return nil
}
