// Package faultrun breaks real server processes on purpose and judges what their
// clients saw: the driver of a cluster, its clients, the workloads and the
// validators. The tests beside it are the short forms that run every time;
// `go run ./test/fault/deep` runs the same scenarios for as long as it is given
// and adds up totals in docs/reliability.md.
//
// Tests that judge answers run side by side; those that judge times run alone, first.
//
// A scenario is a function of a context, a Lab, and a seed that returns a report
// and an error: the error says which promise was broken. Everything random in the
// driver comes from the seed; what the processes make of it depends on the
// machine, so a seed repeats the plan of a run, not its schedule.
//
// Outcomes are exact. A request that certainly reached no server failed; a
// refusal that promises to have done nothing failed; everything else without an
// answer is unknown and stays possible for ever. See classify.
//
// Servers are killed with their driver (on Linux) and every process, file and
// goroutine that a Cluster made ends in Close. A Cluster is driven by one
// goroutine; Clients belong to one goroutine each.
package faultrun
