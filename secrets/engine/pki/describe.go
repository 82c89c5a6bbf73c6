package pki

import (
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/pki/acme"
)

// Routes implements engine.Router.
func (e *Engine) Routes() []engine.Route {
	open := e.Special().Open
	var out []engine.Route
	add := func(table map[string][]route, prefix string) {
		for _, first := range slices.Sorted(maps.Keys(table)) {
			for _, r := range table[first] {
				path := prefix + r.path
				out = append(out, engine.Route{Path: strings.NewReplacer("+", "{name}", "*", "{path}").Replace(path),
					Ops: slices.Sorted(maps.Keys(r.on)),
					Open: slices.Contains(open, path) || slices.Contains(open, path+"/") ||
						(strings.HasPrefix(path, "cert/") && slices.Contains(open, "cert/*"))})
			}
		}
	}
	add(routes, "")
	add(ofIssuer, "issuer/+/")
	return append(out, acme.Routes()...)
}
