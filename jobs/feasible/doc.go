// Package feasible says whether an allocation may be on a node. There is one answer for
// everybody: the scheduler that places, the leader that applies a plan, and the one who asks
// why a job is pending call the same functions.
//
// Two questions are apart. A Program, compiled once for a group in an evaluation, says whether a
// node is of the right kind: Class for what all nodes of a computed class share (constraints,
// drivers, volumes, devices, network modes), Node for constraints on unique properties. A Room says
// whether there is space: Lacks compares a grant with what is free, named things (ports, cores,
// device instances) included. Ask.Assign chooses the named things in a Room.
//
// Distinct hosts and distinct properties depend on the job's other allocations; a Program carries
// them, and package place counts.
//
// Expressions that users bring are compiled by kit/pattern and have bounds. The package is pure and
// safe for concurrent use, but a Room belongs to its holder.
package feasible
