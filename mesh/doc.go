// Package mesh holds the words of the mesh plane and its pure decisions: from
// what the catalog says to what each proxy must know.
//
// Resources are built once per change of their inputs, encoded once, and shared
// by reference; everything here is immutable after it is made, so any goroutine
// may read it. The package keeps no state and knows neither clocks nor sockets.
package mesh
