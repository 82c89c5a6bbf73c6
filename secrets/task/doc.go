// Package task is one request of the plane with what was found of it so far, and the reply that it gets.
//
// A Task goes down the request line as an argument and is of the one goroutine that answers the request. Engines of the
// plane's own (Handler) are given it; all others see the request and a view of their records alone. Nothing keeps a
// task after its reply.
package task
