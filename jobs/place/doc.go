// Package place chooses nodes for the allocations of a group: always the best of all feasible nodes
// by the contract's scores, not the best of a sample (NS-13 lets us look at more).
//
// Cost. Begin walks over the nodes once for a group and an evaluation: each computed class is
// asked once whether its kind serves, each node of a class that serves is scored once (for figures see
// package jobs). After that an allocation costs O(parts + log
// nodes): placing changes the score of one node alone, which moves in its heap, and the spreads'
// scores, which are equal for all nodes of a part. A part is one combination of values of the
// spread attributes and distinct properties: without such there is one part, with a spread over 100
// racks there are 100. Nothing is allocated per candidate; a Placer's slices serve all evaluations.
//
// A group that asks the same as the one before it in the same View does not walk (again.go): it rates anew the nodes
// that the other took, and costs as little as a further allocation of it.
//
// Which part goes first is decided by Spreading.Need, so that spreads are exact to one allocation
// wherever there is room; within equal need, the contract's final score; then chance, by the seed.
//
// A View holds what the pass has placed and stopped so far. Several evaluations may share one, so
// that a plan of many evaluations has no conflicts within itself.
package place
