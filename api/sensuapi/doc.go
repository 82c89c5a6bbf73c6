// Package sensuapi speaks Sensu Go's contract: the agents' WebSocket so far.
//
// It decodes, asks the plane, and encodes; what a result means is decided in package monitor, what an agent
// is sent in package hub. A session's messages are taken in order, one at a time: an agent that
// sends faster than results can be stored waits at its socket, and nobody else does.
package sensuapi
