// Package statestore is the whole catalog at one index: nodes, services, health checks, key-value
// pairs (catalog/kvstore), sessions and records, what a command changes of them, and the queries that
// read them.
//
// Invariants:
//   - State is immutable. Apply returns the next State and the changes; it reads
//     no clock, no randomness and no map order, so every member that applies the
//     same commands holds the same State.
//   - Each command that changes something takes the next Index (State.Index+1).
//     A command that changes nothing (the same registration again, a lost
//     check-and-set) neither takes an index nor wakes a watcher.
//   - Objects reachable from a State are never changed again. Their pointers may
//     be kept, shared and compared.
//   - Names of nodes and services are matched without regard to case and keep the case
//     they were first registered with.
//   - Tombstones are kept until ReapTombstones, so that indexes grow with a deletion. Indexes
//     never fall otherwise.
//
// Apply is for one goroutine; every State is safe for any number of readers and
// pins only its difference to the newest one. Nothing here waits or queues.
// Refusals are errors whose text is the contract's.
//
// The package is pure. It imports catalog, catalog/kvstore, core/table and kit/pack, which are pure too.
package statestore
