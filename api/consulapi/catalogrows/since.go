package catalogrows

import (
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

func nodesSince(q *rows.Request, sel *Selection) error {
	s, err := rows.ReadChanges(q, registry.Subject{Topic: registry.TopicNodes}, (*statestore.State).NodesIndex)
	if err != nil {
		return err
	}
	in := func(n *catalog.Node) bool { return sel.node(n) && sel.filter.Match(n) }
	var changed []*catalog.Node
	var gone []string
	if !s.Reset {
		changed, gone = s.State.NodesSince(s.After)
	}
	put := func(list *answer.List, n *catalog.Node) {
		if q.Sees(acl.Node, n.Name) && in(n) {
			list.Bytes = answer.AppendNode(list.Next(), n)
		}
	}
	return s.Reply("nodes-since", func(list *answer.List) {
		if s.Reset {
			for n := range s.State.Nodes() {
				put(list, n)
			}
		}
		for _, n := range changed {
			put(list, n)
		}
	}, func(list *answer.List) {
		for _, n := range changed { // changed so that it is not selected any more, as far as we know
			if q.Sees(acl.Node, n.Name) && !in(n) {
				list.Bytes = answer.AppendString(list.Next(), n.Name)
			}
		}
		for _, name := range gone {
			if q.Sees(acl.Node, name) {
				list.Bytes = answer.AppendString(list.Next(), name)
			}
		}
	})
}

func servicesSince(q *rows.Request, sel *Selection) error {
	if sel.filter != nil || len(sel.nodeMeta) > 0 {
		return answer.Invalidf("since does not go with filter or node-meta here: they depend on more than the list of " +
			"services")
	}
	s, err := rows.ReadChanges(q, registry.Subject{Topic: registry.TopicServices}, (*statestore.State).ServiceListIndex)
	if err != nil {
		return err
	}
	var changed []*statestore.ServiceSummary
	var gone []string
	if !s.Reset {
		changed, gone = s.State.ServicesSince(s.After)
	}
	put := func(list *answer.List, sum *statestore.ServiceSummary) {
		if q.Sees(acl.Service, sum.Name) {
			b := answer.StringField(list.Next(), `{"Name":`, sum.Name)
			list.Bytes = append(answer.AppendStrings(append(b, `,"Tags":`...), sum.Tags), '}')
		}
	}
	return s.Reply("services-since", func(list *answer.List) {
		if s.Reset {
			for sum := range s.State.ServiceNames() {
				put(list, sum)
			}
		}
		for _, sum := range changed {
			put(list, sum)
		}
	}, func(list *answer.List) {
		for _, name := range gone {
			if q.Sees(acl.Service, name) {
				list.Bytes = answer.AppendString(list.Next(), name)
			}
		}
	})
}

// entriesSince is health/service/:name; what is deleted is named by node and service ID.
func entriesSince(q *rows.Request) error {
	name := q.Rest
	if name == "" {
		return rows.ErrNoService
	}
	sel, err := SelectionOf(q, filter.Entries)
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Service, name, acl.Read); err != nil {
		return err
	}
	s, err := rows.ReadChanges(q, registry.Subject{Topic: registry.TopicService, Key: strings.ToLower(name)},
		func(st *statestore.State) uint64 { return st.InstancesIndex(name) })
	if err != nil {
		return err
	}
	v := viewer(q, &sel)
	var changed []*catalog.Service
	var gone []statestore.GoneInstance
	if !s.Reset {
		changed, gone = s.State.InstancesSince(name, s.After)
	}
	var checks []*catalog.Check
	in := func(n *catalog.Node, svc *catalog.Service) bool {
		checks = appendChecks(checks[:0], s.State, svc)
		return n != nil && v.instance(n, svc) && (!sel.passing || allPassing(checks)) &&
			(sel.filter == nil || sel.filter.Match(&filter.Entry{Node: n, Service: svc, Checks: checks}))
	}
	put := func(list *answer.List, svc *catalog.Service) {
		if n := s.State.Node(svc.Node); in(n, svc) {
			list.Bytes = answer.AppendEntry(list.Next(), n, svc, checks)
		}
	}
	drop := func(list *answer.List, node, id string) {
		if q.Sees(acl.Node, node) {
			b := answer.StringField(list.Next(), `{"Node":`, node)
			list.Bytes = append(answer.StringField(b, `,"ServiceID":`, id), '}')
		}
	}
	return s.Reply("health-since", func(list *answer.List) {
		if s.Reset {
			for svc := range s.State.Instances(name) {
				put(list, svc)
			}
		}
		for _, svc := range changed {
			put(list, svc)
		}
	}, func(list *answer.List) {
		for _, svc := range changed {
			if !in(s.State.Node(svc.Node), svc) {
				drop(list, svc.Node, svc.ID)
			}
		}
		for _, g := range gone {
			drop(list, g.Node, g.ID)
		}
	})
}
