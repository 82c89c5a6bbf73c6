// Package jobsched is what the leader of the jobs plane does: it serves evaluations, judges deployments, empties
// nodes, starts periodic jobs, watches heartbeats and sweeps what is over. Everything it decides is a command
// (jobstore); it keeps nothing that a new leader could not make of the View.
//
// A Sched runs on every server and works in terms: from the moment at which this server holds the lease to the moment
// at which it loses it. A term begins with the View as it is and lives on what Applied tells it.
//
//	Applied -> queue -> worker: planner.Pass on one View for many evaluations -> one command -> outcomes -> queue
//	        -> gains -> flush (each Window): queue.Wake -> evaluations that are stored as pending -> Applied
//	        -> deployments, drains, periodic jobs, heartbeats: looked at when something changed, or when their time comes
//
// Invariants:
//   - No lock is held while planning or committing. The queue has one lock; Applied takes it for moments.
//   - An evaluation is served until the command that has its outcome is committed. A lost command, leader or worker
//     means that it is served again: plans may be applied twice (package apply).
//   - Commands are bounded: a pass takes at most MaxEvals evaluations, and stops taking more after MaxPlacements.
//
// Run owns all goroutines.
package jobsched
