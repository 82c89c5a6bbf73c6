package catalogrows

import (
	"iter"
	"slices"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

func catalogDatacenters(q *rows.Request) error {
	return q.ReplyScratch(answer.AppendStrings(q.Buffer(), q.Known()))
}

func catalogNodes(q *rows.Request) error {
	sel, err := SelectionOf(q, filter.Nodes)
	if err != nil {
		return err
	}
	if rows.AsksChanges(q) {
		if err := noPeer(q); err != nil {
			return err
		}
		return nodesSince(q, &sel)
	}
	if peer := peerOf(q); peer != "" {
		return importedNodes(q, peer, &sel)
	}
	st, err := q.Read(registry.Subject{Topic: registry.TopicNodes}, (*statestore.State).NodesIndex)
	if err != nil {
		return err
	}
	return q.ReplyList("nodes", st.NodesIndex(), func(b []byte) []byte {
		list := answer.List{Bytes: b}
		for n := range rows.Sorted(q, st, st.Nodes(), rows.NodeOfNode) {
			if q.Sees(acl.Node, n.Name) && sel.node(n) && sel.filter.Match(n) {
				list.Bytes = answer.AppendNode(list.Next(), n)
			}
		}
		return list.End()
	})
}

func catalogServices(q *rows.Request) error {
	sel, err := SelectionOf(q, filter.ServiceNodes)
	if err != nil {
		return err
	}
	if rows.AsksChanges(q) {
		if err := noPeer(q); err != nil {
			return err
		}
		return servicesSince(q, &sel)
	}
	if peer := peerOf(q); peer != "" {
		return importedServices(q, peer, &sel)
	}
	st, err := q.Read(registry.Subject{Topic: registry.TopicServices}, (*statestore.State).ServicesIndex)
	if err != nil {
		return err
	}
	if sel.filter != nil || len(sel.nodeMeta) > 0 {
		// Nodes' fields decide too, whose changes do not touch this index: encode for this request alone.
		return q.ReplyScratch(selectedServices(q, q.Buffer(), st, &sel))
	}
	return q.ReplyShared("services", st.ServicesIndex(), func(b []byte) []byte {
		b = append(b, '{')
		for s := range st.ServiceNames() {
			if q.Sees(acl.Service, s.Name) {
				b = answer.AppendString(b, s.Name)
				b = append(b, ':')
				b = answer.AppendStrings(b, s.Tags)
				b = append(b, ',')
			}
		}
		return answer.CloseObject(b)
	})
}

// selectedServices lists the names and tags of the instances that pass the selection.
func selectedServices(q *rows.Request, b []byte, st *statestore.State, sel *Selection) []byte {
	b = append(b, '{')
	for s := range st.ServiceNames() {
		if !q.Sees(acl.Service, s.Name) {
			continue
		}
		var tags []string
		found := false
		for svc := range st.Instances(s.Name) {
			n := st.Node(svc.Node)
			if n == nil || !sel.node(n) || !sel.filter.Match(&filter.ServiceNode{Node: n, Service: svc}) {
				continue
			}
			found = true
			tags = append(tags, svc.Tags...)
		}
		if found {
			slices.Sort(tags)
			b = answer.AppendString(b, s.Name)
			b = append(b, ':')
			b = answer.AppendStrings(b, slices.Compact(tags))
			b = append(b, ',')
		}
	}
	return answer.CloseObject(b)
}

func catalogService(q *rows.Request) error {
	name := q.Rest
	return serviceNodes(q, "service",
		func(s *statestore.State) uint64 { return s.ServiceIndex(name) },
		func(s *statestore.State) iter.Seq[*catalog.Service] { return s.Instances(name) })
}

func catalogConnect(q *rows.Request) error {
	name := q.Rest
	return serviceNodes(q, "connect",
		func(s *statestore.State) uint64 { return s.ConnectIndex(name) },
		func(s *statestore.State) iter.Seq[*catalog.Service] { return connecting(q, s.ConnectInstances(name)) })
}

// serviceNodes answers with the flat view of the instances of a service.
func serviceNodes(q *rows.Request, key string, index func(*statestore.State) uint64,
	instances func(*statestore.State) iter.Seq[*catalog.Service]) error {
	return list(q, shape{filter.ServiceNodes, AppendServiceNodes}, ofService(q), key, index, instances)
}

// AppendServiceNodes appends the flat view of the instances that the viewer sees.
func AppendServiceNodes(b []byte, st *statestore.State, instances iter.Seq[*catalog.Service], v Viewer) []byte {
	list := answer.List{Bytes: b}
	for s := range instances {
		n := st.Node(s.Node)
		if n == nil || !v.instance(n, s) {
			continue
		}
		s = v.sel.merged(st, s)
		if v.sel.filter != nil && !v.sel.filter.Match(&filter.ServiceNode{Node: n, Service: s}) {
			continue
		}
		list.Bytes = answer.AppendServiceNode(list.Next(), n, s)
	}
	return list.End()
}

// nodeAndServices is the part that the two views of one node share.
func nodeAndServices(q *rows.Request) (n *catalog.Node, services iter.Seq[*catalog.Service], err error) {
	name := q.Rest
	if name == "" {
		return nil, nil, rows.ErrNoNode
	}
	sel, err := SelectionOf(q, filter.Services)
	if err == nil {
		err = noPeer(q)
	}
	if err != nil {
		return nil, nil, err
	}
	subject, index := registry.Subject{Topic: registry.TopicNode, Key: strings.ToLower(name)},
		func(s *statestore.State) uint64 { return s.NodeIndex(name) }
	if sel.central {
		_, subject, index = central("", index)
	}
	st, err := q.Read(subject, index)
	if err != nil {
		return nil, nil, err
	}
	if n = st.Node(name); n == nil || !q.Sees(acl.Node, n.Name) {
		return nil, nil, nil
	}
	return n, func(yield func(*catalog.Service) bool) {
		for s := range st.ServicesOfNode(n.Name) {
			if !q.Sees(acl.Service, s.Name) {
				continue
			}
			if s = sel.merged(st, s); sel.filter.Match(s) && !yield(s) {
				return
			}
		}
	}, nil
}

func catalogNode(q *rows.Request) error {
	n, services, err := nodeAndServices(q)
	if err != nil {
		return err
	}
	if n == nil {
		return q.Reply([]byte("null"))
	}
	b := append(q.Buffer(), `{"Node":`...)
	b = answer.AppendNode(b, n)
	b = append(b, `,"Services":{`...)
	for s := range services {
		b = answer.AppendString(b, s.ID)
		b = append(b, ':')
		b = answer.AppendService(b, s)
		b = append(b, ',')
	}
	return q.ReplyScratch(append(answer.CloseObject(b), '}'))
}

func catalogNodeServices(q *rows.Request) error {
	n, services, err := nodeAndServices(q)
	if err != nil {
		return err
	}
	if n == nil {
		return q.Reply([]byte(`{"Node":null,"Services":[]}`))
	}
	b := append(q.Buffer(), `{"Node":`...)
	b = answer.AppendNode(b, n)
	list := answer.List{Bytes: append(b, `,"Services":`...)}
	for s := range services {
		list.Bytes = answer.AppendService(list.Next(), s)
	}
	return q.ReplyScratch(append(list.End(), '}'))
}
