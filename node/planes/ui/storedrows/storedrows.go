// Package storedrows lists what the catalog keeps beside its keys for whoever looks at it in the web UI: config entries
// and prepared queries, as rows that can be filtered. It is pure: a state and a grant in, a page out.
package storedrows

import (
	"net/url"
	"strings"

	"corbel.dev/corbel/api/consulapi/configrows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/query"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

// Entry is a config entry. It implements rowfilter.Row.
type Entry struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	Index uint64 `json:"index"`
}

// Words implements rowfilter.Row.
func (e Entry) Words() []string { return []string{e.Kind, e.Name} }

// Values implements rowfilter.Row.
func (e Entry) Values(field string) []string {
	if field == "kind" {
		return []string{e.Kind}
	}
	return []string{e.Name}
}

// Entries is the page of config entries that q asks for.
func Entries(g *acl.Grant, st *statestore.State, q url.Values) rowlists.Page[Entry] {
	var list []Entry
	for r := range st.Records(catalog.RecordConfigEntry, "") {
		kind, name, _ := strings.Cut(r.Key, "/")
		if res, of := configrows.Right(kind, name, acl.Read); res != acl.NoResource && !g.Allow(res, of, acl.Read) {
			continue
		}
		list = append(list, Entry{kind, name, len(r.Value), r.ModifyIndex})
	}
	return rowlists.Paged(list, q, "kind", "name")
}

// Query is a prepared query. It implements rowfilter.Row.
type Query struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Service string   `json:"service"`
	Tags    []string `json:"tags"`
	// Template tells that it answers for all names that begin with its own; Failover is where it looks when none is left.
	Template bool     `json:"template"`
	Failover []string `json:"failover"`
	Index    uint64   `json:"index"`
}

// Words implements rowfilter.Row.
func (p Query) Words() []string { return append([]string{p.Name, p.Service}, p.Tags...) }

// Values implements rowfilter.Row.
func (p Query) Values(field string) []string {
	switch field {
	case "service":
		return []string{p.Service}
	case "tag":
		return p.Tags
	}
	return []string{p.Name}
}

// Queries is the page of prepared queries that q asks for. The ID of one without a name is its secret: only those who
// manage tokens see it.
func Queries(g *acl.Grant, st *statestore.State, q url.Values) (rowlists.Page[Query], error) {
	var list []Query
	for r := range st.Records(catalog.RecordQuery, "") {
		d, err := query.Load(r)
		if err != nil {
			return rowlists.Page[Query]{}, err
		}
		seen := g.Allow(acl.Query, d.Name, acl.Read)
		if d.Name == "" && !d.IsTemplate() {
			seen = g.Allow(acl.ACL, "", acl.Write)
		}
		if !seen {
			continue
		}
		row := Query{ID: d.ID, Name: d.Name, Service: d.Service.Service, Tags: append([]string{}, d.Service.Tags...),
			Template: d.IsTemplate(), Failover: append([]string{}, d.Service.Failover.Datacenters...), Index: r.ModifyIndex}
		for _, t := range d.Service.Failover.Targets {
			row.Failover = append(row.Failover, t.Datacenter+t.Peer)
		}
		list = append(list, row)
	}
	return rowlists.Paged(list, q, "name", "service", "tag"), nil
}
