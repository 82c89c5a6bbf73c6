// Package httpx holds what the HTTP front doors share: a server with limits and
// a drain, connection limits per client, reading bodies under a bound, queries
// read without a map, blocking-query rules, and response bodies that are encoded
// once and shared by all who ask for them.
//
// Invariants:
//   - Nothing here decides on state; adapters decode, call their plane and encode.
//   - A body handed out by BodyCache is never changed again.
//   - Every size has a bound: headers, bodies, connections, cached bytes. What is
//     over a bound is refused (413, 429) or, in the cache, forgotten.
//
// All types are safe for concurrent use unless they say otherwise. Server.Run
// owns every goroutine of this package.
package httpx
