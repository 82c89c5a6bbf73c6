// Package jobs has the words of the jobs plane: jobs and their groups, nodes, allocations,
// evaluations, deployments and plans. The packages below it decide with them:
//
//	jobs/state      everything at one index, immutable, with each node's free room
//	jobs/feasible   whether an allocation may be on a node: one answer for all who ask
//	jobs/score      how good a node is (the contract's formulas)
//	jobs/place      the best node for each allocation of a group
//	jobs/reconcile  what a job wants compared with what runs: service and batch
//	jobs/everynode  the same for system and sysbatch
//	jobs/preempt    what has to go for something more important
//	jobs/planner    an evaluation -> a plan and what becomes of the evaluation
//	jobs/apply      plans against the newest state: what still fits is committed
//	jobs/evalqueue  evaluations in order: by priority, one per job, later, blocked
//	jobs/explain    why it is pending, and the least that would help
//
// and these lead from clients to it:
//
//	jobs/spec       a job file -> the API's job
//	jobs/jobwire    the API's objects, and from them to the ones here and back
//	jobs/diff       how two versions of a job differ, and what the difference forces
//	jobs/validate   what is wrong with a job that is registered
//	jobs/periodic   when periodic jobs start, and the job that starts
//	jobs/dispatch   a job from a parameterized one
//
// Data flows one way:
//
//	change -> evaluation -> evalqueue -> planner.Pass(State, now, seed) -> plan -> apply -> next State
//	                ^                                                             |
//	                '--- blocked, delayed and follow-up evaluations <-------------'
//
// Invariants:
//   - Nothing here reads a clock, chance or map order: the time and a seed come in as arguments, and the
//     same arguments give the same plan. Ids are made from the seed (Dice).
//   - What is in a State is never changed. A change is a copy.
//   - A plan is a wish. apply checks each node against the newest State with the function that the
//     scheduler placed by, and only what apply returns has happened.
//   - An allocation refers to the version of its job; it never embeds one.
//
// Cost, for n nodes, c computed classes, p combinations of spread values and k allocations of one
// group: an evaluation costs O(allocations of the job + c·constraints + n) once and O(p + log n)
// for each placement; there is no scan of nodes or allocations for an allocation. Applying costs
// O(log) for each allocation.
//
// Measured as CPU time by planner's benchmarks on 10,000 nodes with 170,000 allocations (2 cores shared with
// nine times as much other work, so an upper bound): an evaluation of 1 or of 100 allocations 3.6 ms, nearly all of
// it the walk over the nodes; of 10,000 allocations 28 ms, and 137 ms to apply them; of 1,000 with a spread
// over 100 racks 10 ms. If the walk is to be cheaper, let the tree of Uses hold them by value: it waits for memory.
//
// Types are plain values, safe to share as long as nobody changes them.
package jobs
