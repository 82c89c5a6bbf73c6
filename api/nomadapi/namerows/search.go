package namerows

import (
	"slices"
	"strings"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
)

// mostFound is how many matches of a context are told.
const mostFound = 20

// contexts are what is searched, in the order in which a name leads to its objects.
var contexts = []struct {
	name  string
	table nomadrows.Table
	each  func(q *request, v nomadrows.View, found func(id string) bool)
}{
	{"jobs", nomadrows.Jobs, func(q *request, v nomadrows.View, found func(string) bool) {
		for j := range v.State().Jobs() {
			if q.Sees(j.Namespace, nomadrows.ReadJob) && !found(j.ID) {
				return
			}
		}
	}},
	{"evals", nomadrows.Evaluations, func(q *request, v nomadrows.View, found func(string) bool) {
		for e := range v.State().Evaluations() {
			if q.Sees(e.Namespace, nomadrows.ReadJob) && !found(e.ID.String()) {
				return
			}
		}
	}},
	{"allocs", nomadrows.Allocations, func(q *request, v nomadrows.View, found func(string) bool) {
		for a := range v.State().Allocations() {
			if q.Sees(a.Job.Namespace, nomadrows.ReadJob) && !found(a.ID.String()) {
				return
			}
		}
	}},
	{"nodes", nomadrows.Nodes, func(q *request, v nomadrows.View, found func(string) bool) {
		for u := range v.State().Uses() {
			if q.May("", nomadrows.NodeRead) != nil || !found(u.Node.ID.String()) {
				return
			}
		}
	}},
	{"deployment", nomadrows.Deployments, func(q *request, v nomadrows.View, found func(string) bool) {
		for d := range v.State().Deployments() {
			if q.Sees(d.Namespace, nomadrows.ReadJob) && !found(d.ID.String()) {
				return
			}
		}
	}},
	{"namespaces", nomadrows.Namespaces, func(q *request, v nomadrows.View, found func(string) bool) {
		for _, n := range v.Namespaces() {
			if q.May(n.Name, nomadrows.ListJobs) == nil && !found(n.Name) {
				return
			}
		}
	}},
	{"node_pools", nomadrows.Pools, func(q *request, v nomadrows.View, found func(string) bool) {
		for _, p := range v.Pools() {
			if q.May("", nomadrows.NodeRead) == nil && !found(p.Name) {
				return
			}
		}
	}},
	{"vars", nomadrows.Variables, func(q *request, v nomadrows.View, found func(string) bool) {
		of := q.Namespace
		if of == nomadrows.AllNamespaces {
			of = ""
		}
		for m := range v.Variables(of) {
			if q.May(m.Namespace+"/"+m.Path, nomadrows.ListVariable) == nil && !found(m.Path) {
				return
			}
		}
	}},
}

// wanted are the contexts that a request names.
func wanted(context string) ([]int, error) {
	var list []int
	for i, c := range contexts {
		if context == "" || context == "all" || context == c.name {
			list = append(list, i)
		}
	}
	switch context {
	case "plugins", "volumes", "quotas", "scaling_policy", "recommendations", "groups", "tasks", "services",
		"images", "commands", "classes": // known, and nothing is found in them
		return nil, nil
	}
	if list == nil {
		return nil, nomadrows.Failed("context must be one of the objects that are searched or 'all' for all contexts; got %q",
			context)
	}
	return list, nil
}

func search(q *request) error {
	body, err := nomadrows.Decode[struct{ Prefix, Context string }](q)
	if err != nil {
		return err
	}
	which, err := wanted(body.Context)
	if err != nil {
		return err
	}
	v, err := q.Views.View(q.Ctx(), q.Query.Has("stale"))
	if err != nil {
		return err
	}
	answer := struct {
		Matches     map[string][]string
		Truncations map[string]bool
		Index       uint64
	}{map[string][]string{}, map[string]bool{}, 0}
	for _, i := range which {
		c := contexts[i]
		list := []string{}
		c.each(q, v, func(id string) bool {
			if strings.HasPrefix(id, body.Prefix) {
				list = append(list, id)
			}
			return len(list) <= mostFound
		})
		answer.Truncations[c.name] = len(list) > mostFound
		answer.Matches[c.name] = list[:min(len(list), mostFound)]
		answer.Index = max(answer.Index, v.Index(c.table))
	}
	return q.Told(answer.Index, answer)
}

// match is what a fuzzy search found, and where it belongs.
type match struct {
	ID    string
	Scope []string `json:",omitempty"`
}

// fuzzy finds a text anywhere in names of jobs, their groups and tasks, nodes and namespaces.
func fuzzy(q *request) error {
	body, err := nomadrows.Decode[struct{ Text, Context string }](q)
	if err != nil {
		return err
	}
	if len(body.Text) < 2 {
		return nomadrows.Failed("fuzzy search query must be at least 2 characters, got %d", len(body.Text))
	}
	if _, err := wanted(body.Context); err != nil {
		return err
	}
	v, err := q.Views.View(q.Ctx(), q.Query.Has("stale"))
	if err != nil {
		return err
	}
	found := map[string][]match{}
	truncated := map[string]bool{}
	add := func(context, id string, scope ...string) {
		if body.Context != "" && body.Context != "all" && body.Context != context ||
			!strings.Contains(strings.ToLower(id), strings.ToLower(body.Text)) {
			return
		}
		if len(found[context]) >= mostFound {
			truncated[context] = true
			return
		}
		found[context] = append(found[context], match{id, slices.Clone(scope)})
	}
	for j := range v.State().Jobs() {
		if !q.Sees(j.Namespace, nomadrows.ReadJob) {
			continue
		}
		add("jobs", j.Name, j.Namespace, j.ID)
		for _, g := range j.Groups {
			add("groups", g.Name, j.Namespace, j.ID)
			for _, t := range g.Tasks {
				add("tasks", t.Name, j.Namespace, j.ID, g.Name)
			}
		}
	}
	if q.May("", nomadrows.NodeRead) == nil {
		for u := range v.State().Uses() {
			add("nodes", u.Node.Name, u.Node.ID.String())
		}
	}
	for _, n := range v.Namespaces() {
		if q.May(n.Name, nomadrows.ListJobs) == nil {
			add("namespaces", n.Name)
		}
	}
	return q.Told(v.State().Index(), struct {
		Matches     map[string][]match
		Truncations map[string]bool
		Index       uint64
	}{found, truncated, v.State().Index()})
}
