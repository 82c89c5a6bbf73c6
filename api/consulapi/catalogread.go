package consulapi

import (
	"iter"
	"slices"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/registry"
)

var (
	errMissingNode    = answer.Invalidf("Missing node name")
	errMissingService = answer.Invalidf("Missing service name")
)

func catalogDatacenters(q *request) error {
	return q.replyScratch(answer.AppendStrings(q.buffer(), q.api.Known()))
}

func catalogNodes(q *request) error {
	sel, err := q.selection(filter.Nodes)
	if err != nil {
		return err
	}
	if q.asksSince() {
		return nodesSince(q, &sel)
	}
	st, err := q.read(registry.Subject{Topic: registry.TopicNodes}, (*catalog.State).NodesIndex)
	if err != nil {
		return err
	}
	return q.replyList("nodes", st.NodesIndex(), func(b []byte) []byte {
		list := answer.List{Bytes: b}
		for n := range sorted(q, st, st.Nodes(), nodeOfNode) {
			if q.sees(acl.Node, n.Name) && sel.node(n) && sel.filter.Match(n) {
				list.Bytes = answer.AppendNode(list.Next(), n)
			}
		}
		return list.End()
	})
}

func catalogServices(q *request) error {
	sel, err := q.selection(filter.ServiceNodes)
	if err != nil {
		return err
	}
	if q.asksSince() {
		return servicesSince(q, &sel)
	}
	st, err := q.read(registry.Subject{Topic: registry.TopicServices}, (*catalog.State).ServicesIndex)
	if err != nil {
		return err
	}
	if sel.filter != nil || len(sel.nodeMeta) > 0 {
		// Nodes' fields decide too, whose changes do not touch this index: encode for this request alone.
		return q.replyScratch(q.selectedServices(q.buffer(), st, &sel))
	}
	return q.replyShared("services", st.ServicesIndex(), func(b []byte) []byte {
		b = append(b, '{')
		for s := range st.ServiceNames() {
			if q.sees(acl.Service, s.Name) {
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
func (q *request) selectedServices(b []byte, st *catalog.State, sel *selection) []byte {
	b = append(b, '{')
	for s := range st.ServiceNames() {
		if !q.sees(acl.Service, s.Name) {
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

func catalogService(q *request) error {
	name := q.rest
	return q.serviceNodes("service", registry.TopicService,
		func(s *catalog.State) uint64 { return s.ServiceIndex(name) },
		func(s *catalog.State) iter.Seq[*catalog.Service] { return s.Instances(name) })
}

func catalogConnect(q *request) error {
	name := q.rest
	return q.serviceNodes("connect", registry.TopicService,
		func(s *catalog.State) uint64 { return s.ConnectIndex(name) },
		func(s *catalog.State) iter.Seq[*catalog.Service] { return q.connecting(s.ConnectInstances(name)) })
}

// serviceNodes answers with the flat view of the instances of a service.
func (q *request) serviceNodes(key string, topic registry.Topic, index func(*catalog.State) uint64, instances func(*catalog.State) iter.Seq[*catalog.Service]) error {
	if q.rest == "" {
		return errMissingService
	}
	sel, err := q.selection(filter.ServiceNodes)
	if err != nil {
		return err
	}
	subject := registry.Subject{Topic: topic, Key: strings.ToLower(q.rest)}
	if sel.central {
		key, subject, index = central(key, index)
	}
	st, err := q.read(subject, index)
	if err != nil {
		return err
	}
	return q.replyList(key, index(st), func(b []byte) []byte {
		return appendServiceNodes(b, st, sorted(q, st, instances(st), nodeOfService), q.viewer(&sel))
	})
}

// appendServiceNodes appends the flat view of the instances that the viewer sees.
func appendServiceNodes(b []byte, st *catalog.State, instances iter.Seq[*catalog.Service], v viewer) []byte {
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
func (q *request) nodeAndServices() (n *catalog.Node, services iter.Seq[*catalog.Service], err error) {
	name := q.rest
	if name == "" {
		return nil, nil, errMissingNode
	}
	sel, err := q.selection(filter.Services)
	if err != nil {
		return nil, nil, err
	}
	subject, index := registry.Subject{Topic: registry.TopicNode, Key: strings.ToLower(name)}, func(s *catalog.State) uint64 { return s.NodeIndex(name) }
	if sel.central {
		_, subject, index = central("", index)
	}
	st, err := q.read(subject, index)
	if err != nil {
		return nil, nil, err
	}
	if n = st.Node(name); n == nil || !q.sees(acl.Node, n.Name) {
		return nil, nil, nil
	}
	return n, func(yield func(*catalog.Service) bool) {
		for s := range st.ServicesOfNode(n.Name) {
			if !q.sees(acl.Service, s.Name) {
				continue
			}
			if s = sel.merged(st, s); sel.filter.Match(s) && !yield(s) {
				return
			}
		}
	}, nil
}

func catalogNode(q *request) error {
	n, services, err := q.nodeAndServices()
	if err != nil {
		return err
	}
	if n == nil {
		return q.reply([]byte("null"))
	}
	b := append(q.buffer(), `{"Node":`...)
	b = answer.AppendNode(b, n)
	b = append(b, `,"Services":{`...)
	for s := range services {
		b = answer.AppendString(b, s.ID)
		b = append(b, ':')
		b = answer.AppendService(b, s)
		b = append(b, ',')
	}
	return q.replyScratch(append(answer.CloseObject(b), '}'))
}

func catalogNodeServices(q *request) error {
	n, services, err := q.nodeAndServices()
	if err != nil {
		return err
	}
	if n == nil {
		return q.reply([]byte(`{"Node":null,"Services":[]}`))
	}
	b := append(q.buffer(), `{"Node":`...)
	b = answer.AppendNode(b, n)
	list := answer.List{Bytes: append(b, `,"Services":`...)}
	for s := range services {
		list.Bytes = answer.AppendService(list.Next(), s)
	}
	return q.replyScratch(append(list.End(), '}'))
}
