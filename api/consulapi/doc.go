// Package consulapi speaks the Consul HTTP API: it decodes a request, asks for
// the caller's rights, calls the catalog plane or the agent's local state, and
// encodes the answer. It takes no decision on state.
//
// Invariants:
//   - One route table (routes.go) says what exists; routing, 405 and Allow,
//     OPTIONS, the metrics and the documentation follow from it.
//   - Paths are taken raw: `//` and `%2F` belong to a key. Only dot segments are
//     redirected, as the reference does.
//   - Each request asks for rights before it touches anything.
//   - An answer that many ask for is encoded once (httpx.BodyCache) per version
//     of its content and class of rights.
//   - A parked request holds no buffer.
//
// A server that is not the leader passes whole requests on to the leader, and a
// client agent passes all but its own /v1/agent rows on to any server, through
// Config.Forward.
//
// API is an http.Handler, safe for concurrent use; it starts no goroutines.
package consulapi
