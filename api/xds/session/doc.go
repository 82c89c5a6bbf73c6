// Package session decides what one xDS stream is told and when: the incremental
// ("delta") and the state-of-the-world variant of Envoy's aggregated discovery.
//
// A Session is a value without clock, lock or goroutine. Requests, the news that
// sets changed, and the time go in; the next response and what the client
// acknowledged come out. What always holds:
//
//   - At most one response of a type is unanswered. What changes meanwhile is
//     seen by the comparison after the answer: the newest content wins.
//   - New content goes in the order secrets, clusters, endpoints, extensions,
//     listeners, routes. Listeners and routes wait while clusters or endpoints are
//     unanswered. Removed clusters, endpoints, extensions and secrets go last, in
//     that order, when listeners and routes are answered.
//   - A refused resource is not sent again before its content changes.
//   - A cluster that changes takes its endpoints along, a listener its routes:
//     Envoy warms the new one and waits for them.
//   - Who asks for all clusters or listeners is answered, if need be with none.
//   - What a reconnecting client says it has is not sent again.
//
// What was sent and what was acknowledged are pointers to the shared resources;
// an entry takes 40 bytes. Names that the client asked for are replaced by the
// resource's own string as soon as there is one.
package session

// The limits of what one client may ask for: far beyond a proxy's needs, low
// enough that a thousand hostile streams do not fill the memory.
const (
	maxNames     = 8192 // of one type in one stream
	maxNameBytes = 2048
	maxErrorText = 500 // Envoy quotes the whole resource in its refusals
	// responseBytes is where a response ends and the rest waits for the answer; one resource may be larger.
	responseBytes = 1 << 20
)
