// Package cluster lets several servers share the storage of the secrets plane: one of them is the active one
// and answers, the others stand by with their keys in memory, hand requests on to it, and take over.
//
// What always holds:
//   - A term begins with a greater epoch in the storage than any before it had, so whoever led before writes
//     nothing any more, also when it was asleep meanwhile. The epoch is the fence; the lock only says whose turn it is.
//   - A request is answered only while this server can know that nobody else leads (Lock's Held).
//   - Servers speak to each other with certificates of an authority of their own (core/wire). With the storage
//     "raft" every member has it in a file, from its founding or from whom it joined, which asks for a proof that
//     the joiner can unseal; elsewhere it is a record inside the barrier, so it is there while unsealed.
//   - A sealed member of a Raft group goes on to replicate: it counts for the quorum, and cannot be the active one.
//
// Node's methods and Cluster's may be called from any goroutine; Run of each owns what it starts.
package cluster
