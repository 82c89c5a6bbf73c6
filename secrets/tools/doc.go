// Package tools answers what helps operators and clients and is nobody's state: random bytes and hashes, this host and
// process (metrics, log, profiles), settings for browsers, and descriptions of the API.
//
// What tells of this server alone is answered by the server that is asked. Streams end when the right to them does. All
// methods may be called from any goroutine.
package tools
