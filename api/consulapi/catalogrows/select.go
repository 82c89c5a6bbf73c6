package catalogrows

import (
	"cmp"
	"iter"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

// Selection is what a request narrows a list by.
type Selection struct {
	tags     []string
	nodeMeta [][2]string
	passing  bool
	filter   *filter.Filter
	central  bool // lay proxy-defaults and service-defaults under what proxies registered
}

// SelectionOf reads what a request narrows a list by.
func SelectionOf(q *rows.Request, s *filter.Schema) (sel Selection, err error) {
	if q.Query == "" {
		return sel, nil
	}
	for name, value := range q.Query.Pairs() {
		switch name {
		case "tag":
			sel.tags = append(sel.tags, value)
		case "node-meta":
			k, v, _ := strings.Cut(value, ":")
			sel.nodeMeta = append(sel.nodeMeta, [2]string{k, v})
		case "passing":
			if sel.passing = true; value != "" {
				if sel.passing, err = strconv.ParseBool(value); err != nil {
					return sel, answer.Invalidf("Invalid value for ?passing")
				}
			}
		case "merge-central-config":
			sel.central = true
		}
	}
	sel.filter, err = q.Filter(s)
	return sel, err
}

// Passing tells whether only instances that pass all checks are wanted.
func (s *Selection) Passing() bool { return s.passing }

// node reports whether the node's metadata match.
func (s *Selection) node(n *catalog.Node) bool {
	for _, kv := range s.nodeMeta {
		if v, ok := n.Meta[kv[0]]; !ok || v != kv[1] {
			return false
		}
	}
	return true
}

// service reports whether the instance has all the tags.
func (s *Selection) service(svc *catalog.Service) bool {
	for _, want := range s.tags {
		found := false
		for _, t := range svc.Tags {
			if strings.EqualFold(t, want) {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// Viewer is who looks at a list, and through which selection. It outlives a request.
type Viewer struct {
	grant  *acl.Grant
	sel    *Selection
	hidden *bool // set when something was left out for want of rights
}

// NewViewer is who looks at all instances, or those that pass their checks. hidden is set when something was left out.
func NewViewer(g *acl.Grant, passing bool, hidden *bool) Viewer {
	return Viewer{g, &Selection{passing: passing}, hidden}
}

func viewer(q *rows.Request, sel *Selection) Viewer { return Viewer{q.Grant, sel, &q.Hidden} }

// connecting keeps the instances through which a service that the caller may read is reached.
func connecting(q *rows.Request, all iter.Seq[*catalog.Service]) iter.Seq[*catalog.Service] {
	return func(yield func(*catalog.Service) bool) {
		for s := range all {
			if q.Sees(acl.Service, cmp.Or(s.ProxyDestination, s.Name)) && !yield(s) {
				return
			}
		}
	}
}

// instance reports whether the viewer may see the instance and its node, and asked for them.
func (v *Viewer) instance(n *catalog.Node, s *catalog.Service) bool {
	// By the names that are stored: the request's may be in another case.
	if !v.grant.Allow(acl.Node, s.Node, acl.Read) || !v.grant.Allow(acl.Service, s.Name, acl.Read) {
		*v.hidden = true
		return false
	}
	return v.sel.node(n) && v.sel.service(s)
}

// central is how an answer is asked for that also depends on config entries.
func central(key string, index func(*statestore.State) uint64) (string, registry.Subject,
	func(*statestore.State) uint64) {
	return key + "+central", registry.Subject{Topic: registry.TopicCatalog}, func(st *statestore.State) uint64 {
		return max(index(st), st.RecordsIndex(catalog.RecordConfigEntry))
	}
}

// merged is the instance as its proxy is to be set up: what config entries say lies under
// what it registered. Instances that are no proxies stay as they are.
func (s *Selection) merged(st *statestore.State, svc *catalog.Service) *catalog.Service {
	if !s.central || svc.Kind == catalog.KindTypical {
		return svc
	}
	get := func(kind, name string) entry.Entry { return entry.Stored(st, kind, name) }
	proxy, err := entry.Merge(get, cmp.Or(svc.ProxyDestination, svc.Name), svc.Proxy)
	if err != nil {
		return svc // what is stored was canonical JSON: it decodes
	}
	out := *svc
	out.Proxy = proxy
	return &out
}
