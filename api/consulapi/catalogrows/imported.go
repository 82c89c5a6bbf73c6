package catalogrows

import (
	"slices"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

// What was imported from a peer is answered by ?peer= alone. An imported service is a State of its own, so that the
// lists of instances are made as of any other.

// peerOf is the peer that a request asks about, "" for this cluster.
func peerOf(q *rows.Request) string {
	if q.Query == "" {
		return ""
	}
	return q.Query.Value("peer")
}

// noPeer refuses ?peer where a row does not know it: what it answers would be taken for the peer's.
func noPeer(q *rows.Request) error {
	if peerOf(q) != "" {
		return answer.Invalidf("peer: this request answers for this cluster alone; ask health/service, health/connect, " +
			"catalog/service, catalog/connect, catalog/services or catalog/nodes about a peer, without since")
	}
	return nil
}

func asIs(st *statestore.State) *statestore.State { return st }

// imported is how a service of a peer is read: what to wait for, its index, and the State that it is.
func imported(peer, service string) (registry.Subject, func(*statestore.State) uint64,
	func(*statestore.State) *statestore.State) {
	return registry.RecordSubject(catalog.RecordImported, peering.Key(peer, service)),
		func(st *statestore.State) uint64 { return peering.Index(st, peer, service) },
		func(st *statestore.State) *statestore.State { return peering.Imported(st, peer, service) }
}

// importedNodes lists the nodes on which a peer's services run.
func importedNodes(q *rows.Request, peer string, sel *Selection) error {
	st, err := q.ReadRecords(catalog.RecordImported)
	if err != nil {
		return err
	}
	list := answer.List{Bytes: q.Buffer()}
	for _, n := range peering.Nodes(st, peer) {
		if q.Sees(acl.Node, n.Name) && sel.node(n) && sel.filter.Match(n) {
			list.Bytes = answer.AppendNode(list.Next(), n)
		}
	}
	return q.ReplyScratch(list.End())
}

// importedServices lists the names and tags of what a peer exports.
func importedServices(q *rows.Request, peer string, sel *Selection) error {
	if sel.filter != nil || len(sel.nodeMeta) > 0 {
		return answer.Invalidf("peer does not go with filter or node-meta here: ask for the instances of a service")
	}
	st, err := q.ReadRecords(catalog.RecordImported)
	if err != nil {
		return err
	}
	all := map[string][]string{}
	for _, name := range peering.Names(st, peer) {
		for sum := range peering.Imported(st, peer, name).ServiceNames() {
			if q.Sees(acl.Service, sum.Name) {
				all[sum.Name] = append(all[sum.Name], sum.Tags...)
			}
		}
	}
	for name, tags := range all {
		slices.Sort(tags)
		all[name] = append([]string{}, slices.Compact(tags)...)
	}
	q.TellFiltered()
	return q.ReplyValue(all)
}
