// Package planner turns an evaluation into a plan: it reconciles the job (reconcile for service
// and batch, everynode for system and sysbatch), places what is to be placed (place), lets more
// important work preempt less important (preempt), and says what becomes of the evaluation.
//
// A Pass serves any number of evaluations from one State. Each sees what those before it placed, so
// that the plans of a Pass fit together; a Pass over many evaluations is committed as one entry (see
// package apply). Its View stays true to what State will be when all plans are applied: room of
// allocations that a plan stops is free for that plan alone, and taken for those after it, until the
// node confirms (NS-22, NS-23).
//
// The same State, time, seed and evaluations give the same plans. A Pass belongs to one goroutine,
// and the package is pure.
package planner
