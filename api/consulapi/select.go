package consulapi

import (
	"cmp"
	"iter"
	"strconv"
	"strings"
	"sync"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/kit/errkind"
)

// filterCacheEntries bounds the compiled filters kept; when it is full, all are dropped.
const filterCacheEntries = 512

// filterCache keeps compiled filters by schema and text.
type filterCache struct {
	mu   sync.Mutex
	kept map[filterKey]*filter.Filter
}

type filterKey struct {
	schema *filter.Schema
	text   string
}

func (c *filterCache) get(s *filter.Schema, text string) (*filter.Filter, error) {
	key := filterKey{s, text}
	c.mu.Lock()
	f := c.kept[key]
	c.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := filter.Compile(s, text)
	if err != nil {
		return nil, errkind.New(errkind.Invalid, "Failed to create filter: Failed to create boolean expression evaluator: "+err.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= filterCacheEntries {
		c.kept = make(map[filterKey]*filter.Filter)
	}
	c.kept[key] = f
	return f, nil
}

// filter compiles the request's filter; nil lets all pass.
func (q *request) filter(s *filter.Schema) (*filter.Filter, error) {
	if q.q == "" {
		return nil, nil
	}
	text, _ := q.q.Get("filter")
	if text == "" {
		return nil, nil
	}
	return q.api.filters.get(s, text)
}

// selection is what a request narrows a list by.
type selection struct {
	tags     []string
	nodeMeta [][2]string
	passing  bool
	filter   *filter.Filter
	central  bool // lay proxy-defaults and service-defaults under what proxies registered
}

func (q *request) selection(s *filter.Schema) (sel selection, err error) {
	if q.q == "" {
		return sel, nil
	}
	for name, value := range q.q.Pairs() {
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
	sel.filter, err = q.filter(s)
	return sel, err
}

// node reports whether the node's metadata match.
func (s *selection) node(n *catalog.Node) bool {
	for _, kv := range s.nodeMeta {
		if v, ok := n.Meta[kv[0]]; !ok || v != kv[1] {
			return false
		}
	}
	return true
}

// service reports whether the instance has all the tags.
func (s *selection) service(svc *catalog.Service) bool {
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

// viewer is who looks at a list, and through which selection. It outlives a request.
type viewer struct {
	grant  *acl.Grant
	sel    *selection
	hidden *bool // set when something was left out for want of rights
}

func (q *request) viewer(sel *selection) viewer { return viewer{q.grant, sel, &q.hidden} }

// connecting keeps the instances through which a service that the caller may read is reached.
func (q *request) connecting(all iter.Seq[*catalog.Service]) iter.Seq[*catalog.Service] {
	return func(yield func(*catalog.Service) bool) {
		for s := range all {
			if q.sees(acl.Service, cmp.Or(s.ProxyDestination, s.Name)) && !yield(s) {
				return
			}
		}
	}
}

// instance reports whether the viewer may see the instance and its node, and asked for them.
func (v *viewer) instance(n *catalog.Node, s *catalog.Service) bool {
	// By the names that are stored: the request's may be in another case.
	if !v.grant.Allow(acl.Node, s.Node, acl.Read) || !v.grant.Allow(acl.Service, s.Name, acl.Read) {
		*v.hidden = true
		return false
	}
	return v.sel.node(n) && v.sel.service(s)
}
