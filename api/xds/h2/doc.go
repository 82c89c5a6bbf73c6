// Package h2 is a lean gRPC server over HTTP/2, for very many quiet streams.
//
// A connection has two goroutines, whatever the number of its streams: one reads
// frames and hands whole messages to the streams' calls, one gathers what all
// woken streams have to say and writes it with one system call. A stream is a
// struct; Wake costs an atomic operation and a place in a list.
//
// A Call's methods run under the connection's lock, so a call needs none of its
// own; they must be quick. What must wait (looking a client up, a unary
// method's work) runs in goroutines of its own and comes back with Stream.Do.
//
// What always holds:
//
//   - A stream buffers at most one outgoing message. Calls are asked for the next
//     one when that is written, so whoever reads slowly gets newer content, not more.
//   - Flow control is obeyed in both directions; header lists, message sizes,
//     half-received messages, streams, connections and unread control frames are
//     bounded; a peer that makes no progress is closed after a deadline.
//   - Messages that are not compressed are taken alone; others are refused with
//     UNIMPLEMENTED.
//
// The lock order is: connection, then whatever a Call locks. Wake takes a leaf
// lock only, so it may be called under any other.
package h2
