// Package envoy makes Envoy resources: a view of the mesh goes in, an encoded
// mesh.Resource comes out.
//
// Every function is pure. Equal views give equal bytes, and the version of a
// resource is the hash of its content, so that equal content has one version
// wherever and whenever it was built. What Envoy would refuse is refused here,
// with the field's name: every message is checked by the rules that Envoy's own
// definitions carry before it is encoded. Names, shapes and stat prefixes are
// those of section 30 of the contract.
//
// Everything that is the same for many proxies (endpoints, rules, clusters,
// routes) is one resource for all of them; only listeners hold what is one
// proxy's own. The package is the only one of the product that imports Envoy's
// definitions.
package envoy
