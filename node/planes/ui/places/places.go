// Package places finds what a person goes to by a part of its name: services, nodes and keys of the catalog.
package places

import (
	"net/url"
	"strings"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
)

// most bounds what is found of each kind.
const most = 8

// Named are the services, nodes and keys that g may read whose names have the text in them.
func Named(g *acl.Grant, st *statestore.State, text string) (out []uiapi.Place) {
	text = strings.ToLower(strings.TrimSpace(text))
	found := 0
	add := func(kind, name, path string) bool {
		if strings.Contains(strings.ToLower(name), text) {
			out, found = append(out, uiapi.Place{Name: name, Kind: kind, Path: path}), found+1
		}
		return found < most
	}
	for s := range st.ServiceNames() {
		if g.Allow(acl.Service, s.Name, acl.Read) && !add("service", s.Name, "/services/"+url.PathEscape(s.Name)) {
			break
		}
	}
	found = 0
	for n := range st.Nodes() {
		if g.Allow(acl.Node, n.Name, acl.Read) && !add("node", n.Name, "/nodes?q="+url.QueryEscape(n.Name)) {
			break
		}
	}
	if found = 0; text != "" {
		for k := range st.KVPrefix("") {
			if g.Allow(acl.Key, k.Key, acl.Read) && !add("key", k.Key, "/kv/"+escapeKey(k.Key)+"?key=1") {
				break
			}
		}
	}
	return out
}

func escapeKey(key string) string {
	parts := strings.Split(key, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
