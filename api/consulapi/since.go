package consulapi

import (
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/registry"
)

// since is a read that asks for what changed after an index (docs/extensions.md).
//
// The answer names the index that it leads to, which the client gives as since the
// next time: whoever takes over all answers holds the list that a full read at the
// last index gives. Where that cannot be told (no index yet, forgotten deletions, an
// index of another history) the answer is the whole list and says Reset; a client
// that missed something is told so and never left to guess.
type since struct {
	q     *request
	after uint64
	reset bool
	st    *catalog.State
	index uint64
}

var errSinceAlone = answer.Invalidf("since goes with recurse: /v1/kv/prefix?recurse&since=0")

// asksSince tells whether the request is a read of changes.
func (q *request) asksSince() bool { return q.q != "" && q.q.Has("since") }

// since waits until something changed after the index asked for, or the wait is over.
// index is the newest index of what the list shows; nil is returned with an error or
// when the request was answered elsewhere.
func (q *request) since(subject registry.Subject, index func(*catalog.State) uint64) (*since, error) {
	after, err := q.sinceIndex()
	if err != nil {
		return nil, err
	}
	if q.q.Has("index") {
		return nil, answer.Invalidf("since and index exclude each other: since blocks as index does")
	}
	if q.q.Has("merge-central-config") {
		return nil, answer.Invalidf("since and merge-central-config exclude each other: what config entries change is no change of an instance")
	}
	s := &since{q: q, after: after}
	q.after = strconv.FormatUint(after, 10)
	s.st, err = q.read(subject, func(st *catalog.State) uint64 {
		if s.mustReset(st) {
			return after + 1 // told at once
		}
		return index(st)
	})
	if err != nil {
		return nil, err
	}
	s.reset = s.mustReset(s.st)
	s.index = s.st.Index()
	if !s.reset && s.index < after {
		s.index = after // a follower that is behind knows of nothing newer
	}
	q.w.Header()["X-Consul-Index"] = indexHeader(s.index)
	return s, nil
}

func (q *request) sinceIndex() (uint64, error) {
	v, _ := q.q.Get("since")
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, answer.Invalidf("Invalid since %q: give the Index of the answer before, or 0", v)
	}
	return n, nil
}

// mustReset tells whether the changes cannot be told. An index that is ahead of the
// leader's is of another history; a follower may be behind, and then it waits.
func (s *since) mustReset(st *catalog.State) bool {
	return s.after == 0 || s.after < st.Horizon() || s.after > st.Index() && s.q.mode != registry.Stale
}

// reply answers with what the two functions append: the elements of Set (all of them
// when everything is told) and of Deleted. The body is shared by all who ask the same.
func (s *since) reply(key string, set, gone func(b *answer.List)) error {
	return s.q.replyShared(key, s.index, func(b []byte) []byte {
		b = answer.UintField(b, `{"Index":`, s.index)
		b = answer.BoolField(b, `,"Reset":`, s.reset)
		list := answer.List{Bytes: append(b, `,"Set":`...)}
		set(&list)
		list = answer.List{Bytes: append(list.End(), `,"Deleted":`...)}
		if !s.reset {
			gone(&list)
		}
		return append(list.End(), '}')
	})
}

func kvSince(q *request) error {
	prefix := q.rest
	if q.api.cfg.KeyListPolicy {
		if err := q.allow(acl.Key, prefix, acl.List); err != nil {
			return err
		}
	}
	s, err := q.since(registry.Subject{Topic: registry.TopicKVPrefix, Key: prefix},
		func(st *catalog.State) uint64 { return st.KVPrefixIndex(prefix) })
	if err != nil {
		return err
	}
	var changed []*catalog.KVPair
	var gone []string
	if !s.reset {
		changed, gone = s.st.KVSince(prefix, s.after)
	}
	return s.reply("kv-since", func(list *answer.List) {
		if s.reset {
			for p := range q.visible(s.st) {
				list.Bytes = answer.AppendKVPair(list.Next(), p)
			}
		}
		for _, p := range changed {
			if q.sees(acl.Key, p.Key) {
				list.Bytes = answer.AppendKVPair(list.Next(), p)
			}
		}
	}, func(list *answer.List) {
		for _, key := range gone {
			if q.sees(acl.Key, key) {
				list.Bytes = answer.AppendString(list.Next(), key)
			}
		}
	})
}

func nodesSince(q *request, sel *selection) error {
	s, err := q.since(registry.Subject{Topic: registry.TopicNodes}, (*catalog.State).NodesIndex)
	if err != nil {
		return err
	}
	in := func(n *catalog.Node) bool { return sel.node(n) && sel.filter.Match(n) }
	var changed []*catalog.Node
	var gone []string
	if !s.reset {
		changed, gone = s.st.NodesSince(s.after)
	}
	put := func(list *answer.List, n *catalog.Node) {
		if q.sees(acl.Node, n.Name) && in(n) {
			list.Bytes = answer.AppendNode(list.Next(), n)
		}
	}
	return s.reply("nodes-since", func(list *answer.List) {
		if s.reset {
			for n := range s.st.Nodes() {
				put(list, n)
			}
		}
		for _, n := range changed {
			put(list, n)
		}
	}, func(list *answer.List) {
		for _, n := range changed { // changed so that it is not selected any more, as far as we know
			if q.sees(acl.Node, n.Name) && !in(n) {
				list.Bytes = answer.AppendString(list.Next(), n.Name)
			}
		}
		for _, name := range gone {
			if q.sees(acl.Node, name) {
				list.Bytes = answer.AppendString(list.Next(), name)
			}
		}
	})
}

func servicesSince(q *request, sel *selection) error {
	if sel.filter != nil || len(sel.nodeMeta) > 0 {
		return answer.Invalidf("since does not go with filter or node-meta here: they depend on more than the list of services")
	}
	s, err := q.since(registry.Subject{Topic: registry.TopicServices}, (*catalog.State).ServiceListIndex)
	if err != nil {
		return err
	}
	var changed []*catalog.ServiceSummary
	var gone []string
	if !s.reset {
		changed, gone = s.st.ServicesSince(s.after)
	}
	put := func(list *answer.List, sum *catalog.ServiceSummary) {
		if q.sees(acl.Service, sum.Name) {
			b := answer.StringField(list.Next(), `{"Name":`, sum.Name)
			list.Bytes = append(answer.AppendStrings(append(b, `,"Tags":`...), sum.Tags), '}')
		}
	}
	return s.reply("services-since", func(list *answer.List) {
		if s.reset {
			for sum := range s.st.ServiceNames() {
				put(list, sum)
			}
		}
		for _, sum := range changed {
			put(list, sum)
		}
	}, func(list *answer.List) {
		for _, name := range gone {
			if q.sees(acl.Service, name) {
				list.Bytes = answer.AppendString(list.Next(), name)
			}
		}
	})
}

// entriesSince is health/service/:name; what is deleted is named by node and service ID.
func entriesSince(q *request) error {
	name := q.rest
	if name == "" {
		return errMissingService
	}
	sel, err := q.selection(filter.Entries)
	if err != nil {
		return err
	}
	if err := q.allow(acl.Service, name, acl.Read); err != nil {
		return err
	}
	s, err := q.since(registry.Subject{Topic: registry.TopicService, Key: strings.ToLower(name)},
		func(st *catalog.State) uint64 { return st.InstancesIndex(name) })
	if err != nil {
		return err
	}
	v := q.viewer(&sel)
	var changed []*catalog.Service
	var gone []catalog.GoneInstance
	if !s.reset {
		changed, gone = s.st.InstancesSince(name, s.after)
	}
	var checks []*catalog.Check
	in := func(n *catalog.Node, svc *catalog.Service) bool {
		checks = appendChecks(checks[:0], s.st, svc)
		return n != nil && v.instance(n, svc) && (!sel.passing || allPassing(checks)) &&
			(sel.filter == nil || sel.filter.Match(&filter.Entry{Node: n, Service: svc, Checks: checks}))
	}
	put := func(list *answer.List, svc *catalog.Service) {
		if n := s.st.Node(svc.Node); in(n, svc) {
			list.Bytes = answer.AppendEntry(list.Next(), n, svc, checks)
		}
	}
	drop := func(list *answer.List, node, id string) {
		if q.sees(acl.Node, node) {
			b := answer.StringField(list.Next(), `{"Node":`, node)
			list.Bytes = append(answer.StringField(b, `,"ServiceID":`, id), '}')
		}
	}
	return s.reply("health-since", func(list *answer.List) {
		if s.reset {
			for svc := range s.st.Instances(name) {
				put(list, svc)
			}
		}
		for _, svc := range changed {
			put(list, svc)
		}
	}, func(list *answer.List) {
		for _, svc := range changed {
			if !in(s.st.Node(svc.Node), svc) {
				drop(list, svc.Node, svc.ID)
			}
		}
		for _, g := range gone {
			drop(list, g.Node, g.ID)
		}
	})
}
