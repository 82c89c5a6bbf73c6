// Package jobstore is the jobs plane's replicated state: commands that come out of the plane's Raft group change it,
// views show it, and those who wait for a change are told.
//
// Data flows one way:
//
//	Command -> group -> Store.ApplyBatch -> next View -> waiters, events, Config.Applied (the leader's queue)
//
// Invariants:
//   - The same commands make the same View on every server: time and chance come with the command.
//   - A Command happens whole or not at all. It is one index, whatever it changes: thousands of placements, reports or
//     registrations are one command. Commands of one batch make one View.
//   - An evaluation that a change calls for is made by the command that makes the change: no crash forgets it (NS-1).
//   - A View never changes. What it holds is shared and must not be changed.
//   - Who waits for a subject is woken after the View that has the change is visible.
//   - The ring of events is bounded by number. A reader that fell behind is told, and reads the View anew.
//
// Allocations refer to versions of jobs: in commands by number, in memory by pointer. A version that only allocations
// know (the job was purged, the version pruned) is kept by them, also in snapshots.
//
// ApplyBatch, Snapshot and Restore are for the group, from one goroutine; everything else is safe for concurrent use.
// Apply (Command on View) is pure.
package jobstore
