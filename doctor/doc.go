// Package doctor names what makes a cluster slow.
//
// Evidence is what one process knows at a moment: windows of its metrics beside what is usual for them, facts,
// stacks, slow requests, the floors of its machine. Judge turns the evidence of a cluster into a Report of
// ranked findings, each with its figures, what it is not, and what to do.
//
// Invariants:
//   - Judge is a function: the same evidence gives the same report, and nothing is read but the evidence.
//   - A finding rests on figures that it shows. Nothing is called fine that was not measured.
//   - What is usual never excuses: absolute limits and the machine's floors hold beside it.
//   - Load alone is no fault: a busy server that keeps its limits gives no finding.
//   - A cause comes before what it causes. What a cause explains stands under it as its consequence,
//     not beside it as another finding.
//   - Neither evidence nor findings hold keys, tokens, paths of secrets or their values: series, stacks and
//     kinds of requests have names that the program gives; who asks is named by accessor or address.
//
// Units: durations of series are milliseconds, as telemetry shows them; rates are per second.
package doctor
