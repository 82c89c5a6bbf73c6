// Package namerows answers the rows of what has names: namespaces, services of the provider nomad, and the search that
// completes names and ids.
package namerows

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

type request = nomadrows.Request

// Rows are the rows of names.
func Rows() []nomadrows.Row {
	const any, manage = nomadrows.Anyone, nomadrows.Management
	return []nomadrows.Row{
		{Methods: "GET", Path: "/v1/namespaces", Right: any, Handle: namespaces},
		{Methods: "PUT POST", Path: "/v1/namespaces", Right: manage, Handle: putNamespace},
		{Methods: "PUT POST", Path: "/v1/namespace", Right: manage, Handle: putNamespace},
		{Methods: "GET", Path: "/v1/namespace/:name", Right: any, Handle: namespace},
		{Methods: "PUT POST", Path: "/v1/namespace/:name", Right: manage, Handle: putNamespace},
		{Methods: "DELETE", Path: "/v1/namespace/:name", Right: manage, Handle: deleteNamespace},
		{Methods: "GET", Path: "/v1/services", Right: nomadrows.ReadJob, Handle: services},
		{Methods: "DELETE", Path: "/v1/service/:name/:id", Right: nomadrows.SubmitJob, Handle: deleteService},
		{Methods: "GET", Path: "/v1/service/:name", Right: nomadrows.ReadJob, Handle: service},
		{Methods: "POST PUT", Path: "/v1/search", Right: any, Handle: search},
		{Methods: "POST PUT", Path: "/v1/search/fuzzy", Right: any, Handle: fuzzy},
	}
}

func namespaces(q *request) error {
	prefix := q.Query.Value("prefix")
	return q.Read(nomadrows.Whole(nomadrows.Namespaces, func(v nomadrows.View) (any, error) {
		return nomadrows.List(q, nomadrows.Listing[*nomadrows.Namespace]{
			Items: func(yield func(*nomadrows.Namespace) bool) {
				for _, n := range v.Namespaces() {
					if strings.HasPrefix(n.Name, prefix) && q.May(n.Name, nomadrows.ListJobs) == nil && !yield(n) {
						return
					}
				}
			},
			Name: func(n *nomadrows.Namespace) string { return n.Name },
			Show: func(n *nomadrows.Namespace) any { return n },
		})
	}))
}

func namespace(q *request) error {
	name := q.Args["name"]
	return q.Read(nomadrows.Whole(nomadrows.Namespaces, func(v nomadrows.View) (any, error) {
		if err := q.May(name, nomadrows.ListJobs); err != nil {
			return nil, err
		}
		list := v.Namespaces()
		at := slices.IndexFunc(list, func(n *nomadrows.Namespace) bool { return n.Name == name })
		if at < 0 {
			return nil, nomadrows.NotFound("Namespace not found")
		}
		return list[at], nil
	}))
}

// validName is compiled when it is first needed: a counted repetition takes long, at each start of the program.
var validName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-zA-Z0-9-]{1,128}$`)
})

func putNamespace(q *request) error {
	n, err := nomadrows.Decode[nomadrows.Namespace](q)
	if err != nil {
		return err
	}
	name := q.Args["name"]
	if n.Name == "" {
		n.Name = name
	}
	switch {
	case n.Name == "":
		return nomadrows.BadRequest("Namespace name is missing")
	case name != "" && n.Name != name:
		return nomadrows.BadRequest("Namespace name does not match request path")
	case !validName().MatchString(n.Name):
		return nomadrows.Failed("invalid name %q. Must match regex %s", n.Name, validName())
	case len(n.Description) > 256:
		return nomadrows.Failed("description longer than 256")
	}
	w, err := q.Settings.Put(q.Ctx(), n)
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, nil)
}

func deleteNamespace(q *request) error {
	if q.Args["name"] == "default" {
		return nomadrows.Failed("can not delete default namespace")
	}
	w, err := q.Settings.Delete(q.Ctx(), nomadrows.Namespaces, "", q.Args["name"])
	if err != nil && !errkind.Is(err, errkind.NotFound) { // stock says 200 to one that is not there
		return err
	}
	return q.Wrote(w.Index, nil)
}
