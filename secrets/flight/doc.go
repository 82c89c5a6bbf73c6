// Package flight knows the requests that are under way, and lets long work beside them take little.
//
// A request is in one of 16 lists from Begin to End, each with a lock of its own that is held for a few stores. Bulk is
// work in steps: it asks whether requests began since the last one, and rests if they did. List may be used from any
// goroutine, a Bulk from one.
package flight
