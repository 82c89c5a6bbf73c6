// Package registry is the replicated catalog on a server: it applies the log's
// commands to a statestore.State, wakes and feeds those who watch, and, on the
// leader, does what only one may do (session TTLs, tombstones, membership).
//
// Invariants:
//   - The State is replaced once per applied batch by one atomic store; a reader
//     never sees a part of a batch. What a waiter or a follower is told is
//     visible in State before it is told.
//   - Await loses no wake-up; it may return without cause.
//   - Time never enters the State. Lock delays and session TTLs run by this
//     process's monotonic clock; every server arms lock delays, only the leader
//     refuses by them and only the leader expires sessions.
//   - Duties of the leader begin after it has seen its own term committed, and
//     all of them have ended before the next term's begin.
//
// Concurrency: ApplyBatch, Snapshot and Restore belong to the group's apply
// goroutine. SetProposer comes before Run. Everything else is safe from any
// goroutine. No lock is held while proposing, encoding or waking.
//
// Bounds: events are kept in rings (core/topic) and fall out when full; a
// follower that missed some is told so. Expiring sessions and membership
// changes are proposed by a fixed number of workers, so that a storm waits here
// and not in the log. When the log pushes back, the duty tries again later.
package registry
