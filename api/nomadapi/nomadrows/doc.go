// Package nomadrows is what the rows of the Nomad API share: what they need of the plane (needs.go), the request with
// its rights, blocking queries, pages and filters, and how answers and errors are written.
//
// Rows decode, ask the plane and encode; they keep no state and start no goroutine. All types are safe for concurrent
// use, but for Request, which belongs to its handler.
package nomadrows
