package catalogrows

import (
	"iter"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/gateway"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

func healthService(q *rows.Request) error {
	name := q.Rest
	if rows.AsksChanges(q) {
		if err := noPeer(q); err != nil {
			return err
		}
		return entriesSince(q)
	}
	return entries(q, "health", func(s *statestore.State) uint64 { return s.ServiceIndex(name) },
		func(s *statestore.State) iter.Seq[*catalog.Service] { return s.Instances(name) })
}

func healthConnect(q *rows.Request) error {
	name := q.Rest
	return entries(q, "health-connect", func(s *statestore.State) uint64 { return s.ConnectIndex(name) },
		func(s *statestore.State) iter.Seq[*catalog.Service] { return connecting(q, s.ConnectInstances(name)) })
}

// healthIngress answers with the ingress gateways through which a service that the caller may read is reached.
func healthIngress(q *rows.Request) error {
	name := q.Rest
	subject := registry.Subject{Topic: registry.TopicCatalog}
	return list(q, shape{filter.Entries, AppendEntries}, subject, "health-ingress",
		func(s *statestore.State) uint64 { return gateway.IngressIndex(s, name) },
		func(s *statestore.State) iter.Seq[*catalog.Service] {
			if !q.Sees(acl.Service, name) {
				return func(func(*catalog.Service) bool) {}
			}
			return gateway.Ingress(s, name)
		})
}

// entries answers with instances of one service, their nodes and their checks.
func entries(q *rows.Request, key string, index func(*statestore.State) uint64,
	instances func(*statestore.State) iter.Seq[*catalog.Service]) error {
	return list(q, shape{filter.Entries, AppendEntries}, ofService(q), key, index, instances)
}

// ofService is what changes with the service that the request names.
func ofService(q *rows.Request) registry.Subject {
	return registry.Subject{Topic: registry.TopicService, Key: strings.ToLower(q.Rest)}
}

// shape is how instances are shown: the fields that a filter may name, and the encoding.
type shape struct {
	fields *filter.Schema
	append func(b []byte, st *statestore.State, instances iter.Seq[*catalog.Service], v Viewer) []byte
}

// list answers with instances that change with a subject.
func list(q *rows.Request, as shape, subject registry.Subject, key string, index func(*statestore.State) uint64,
	instances func(*statestore.State) iter.Seq[*catalog.Service]) error {
	if q.Rest == "" {
		return rows.ErrNoService
	}
	sel, err := SelectionOf(q, as.fields)
	if err != nil {
		return err
	}
	view := asIs
	if peer := peerOf(q); peer != "" {
		sel.central = false // what entries say is of our own services
		subject, index, view = imported(peer, q.Rest)
	}
	if sel.central {
		key, subject, index = central(key, index)
	}
	st, err := q.Read(subject, index)
	if err != nil {
		return err
	}
	return q.ReplyList(key, index(st), func(b []byte) []byte {
		of := view(st)
		return as.append(b, of, rows.Sorted(q, st, instances(of), rows.NodeOfService), viewer(q, &sel))
	})
}

// AppendEntries appends the instances that the viewer sees, with nodes and checks.
func AppendEntries(b []byte, st *statestore.State, instances iter.Seq[*catalog.Service], v Viewer) []byte {
	list := answer.List{Bytes: b}
	var checks []*catalog.Check
	for s := range instances {
		n := st.Node(s.Node)
		if n == nil || !v.instance(n, s) {
			continue
		}
		s = v.sel.merged(st, s)
		checks = appendChecks(checks[:0], st, s)
		if v.sel.passing && !allPassing(checks) {
			continue
		}
		if v.sel.filter != nil && !v.sel.filter.Match(&filter.Entry{Node: n, Service: s, Checks: checks}) {
			continue
		}
		list.Bytes = answer.AppendEntry(list.Next(), n, s, checks)
	}
	return list.End()
}

// appendChecks gathers the checks of the node and then those of the instance.
func appendChecks(to []*catalog.Check, st *statestore.State, s *catalog.Service) []*catalog.Check {
	for c := range st.NodeChecks(s.Node) {
		to = append(to, c)
	}
	for c := range st.InstanceChecks(s.Node, s.ID) {
		to = append(to, c)
	}
	return to
}

func allPassing(checks []*catalog.Check) bool {
	for _, c := range checks {
		if c.Status != catalog.Passing {
			return false
		}
	}
	return true
}

func healthNode(q *rows.Request) error {
	name := q.Rest
	if name == "" {
		return rows.ErrNoNode
	}
	return checks(q, "health-node", registry.Subject{Topic: registry.TopicNodeChecks, Key: strings.ToLower(name)},
		func(s *statestore.State) uint64 { return s.NodeChecksIndex(name) },
		func(s *statestore.State) iter.Seq[*catalog.Check] { return s.ChecksOfNode(name) })
}

func healthChecks(q *rows.Request) error {
	name := q.Rest
	if name == "" {
		return rows.ErrNoService
	}
	return checks(q, "health-checks", registry.Subject{Topic: registry.TopicServiceChecks, Key: strings.ToLower(name)},
		func(s *statestore.State) uint64 { return s.ServiceChecksIndex(name) },
		func(s *statestore.State) iter.Seq[*catalog.Check] { return s.ChecksOfService(name) })
}

func healthState(q *rows.Request) error {
	word := q.Rest
	if word == "" {
		return answer.Invalidf("Missing check state")
	}
	want, known := catalog.ParseHealth(word)
	return checks(q, "health-state", registry.Subject{Topic: registry.TopicChecks}, (*statestore.State).ChecksIndex,
		func(s *statestore.State) iter.Seq[*catalog.Check] {
			return func(yield func(*catalog.Check) bool) {
				if word != "any" && !known {
					return
				}
				for c := range s.Checks() {
					if (word == "any" || c.Status == want) && !yield(c) {
						return
					}
				}
			}
		})
}

// checks answers with a list of checks.
func checks(q *rows.Request, key string, subject registry.Subject, index func(*statestore.State) uint64,
	all func(*statestore.State) iter.Seq[*catalog.Check]) error {
	sel, err := SelectionOf(q, filter.Checks)
	if err == nil {
		err = noPeer(q)
	}
	if err != nil {
		return err
	}
	st, err := q.Read(subject, index)
	if err != nil {
		return err
	}
	encode := func(b []byte) []byte {
		list := answer.List{Bytes: b}
		for c := range rows.Sorted(q, st, all(st), rows.NodeOfCheck) {
			if seesCheck(q, c) && nodeMatches(q, st, &sel, c.Node) && sel.filter.Match(c) {
				list.Bytes = answer.AppendCheck(list.Next(), c)
			}
		}
		return list.End()
	}
	if len(sel.nodeMeta) > 0 { // a node's metadata may change without these indexes
		return q.ReplyScratch(encode(q.Buffer()))
	}
	return q.ReplyList(key, index(st), encode)
}

func seesCheck(q *rows.Request, c *catalog.Check) bool {
	if c.ServiceName != "" && !q.Sees(acl.Service, c.ServiceName) {
		return false
	}
	return q.Sees(acl.Node, c.Node)
}

func nodeMatches(q *rows.Request, st *statestore.State, sel *Selection, node string) bool {
	if len(sel.nodeMeta) == 0 {
		return true
	}
	n := st.Node(node)
	return n != nil && sel.node(n)
}
