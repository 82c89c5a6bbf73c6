// Package reconcile compares what a service or batch job wants with the allocations that it has, and
// says what is to be placed, stopped, updated and waited for (NS-27 to NS-32). It chooses no nodes.
//
// Each group goes through the same steps: allocations are sorted by what became of them and their nodes
// (sort.go); what is too much stops; what runs an old version is updated in place or replaced, as far as
// the deployment allows (update.go); what is missing is placed. Rollout judges a deployment from the
// health of its allocations: promote, fail, revert, done.
//
// Invariants:
//   - An index is given once: at the end of a plan no two running allocations of a group have the same, but
//     for canaries that wait for promotion and originals on disconnected nodes.
//   - A running allocation is stopped only together with a reason that an operator can read.
//   - A failed allocation is replaced once: by its policy, never while its deployment judges it, and by the
//     version that it ran when the new version is not promoted.
//
// Cost: O(allocations of the job). The package is pure.
package reconcile
