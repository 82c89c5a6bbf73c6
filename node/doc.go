// Package node builds the processes of Corbel from their configuration: the
// server, the client agent and dev, which is both in one.
//
// It is the one place that knows every package; only cli imports it. A Server
// and an Agent both embed the localAgent of their host, which asks them, as its
// role, for what they do otherwise: no field is nil on the other of the two. Each
// process is a list of parts built by plain calls in reading order and run in
// one life.Group, which stops them in reverse: front doors first, the Raft group
// last. New opens files and sockets but starts nothing; Run owns every goroutine
// and returns when all have ended; Reload applies a new configuration all or
// nothing.
package node
