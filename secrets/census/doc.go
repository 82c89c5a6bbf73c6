// Package census counts what there is: for gauges, and for whom live tokens and leases are.
//
// Counts walk over the records past the caches, in steps of flight.Bulk, and are of no one moment. Gauges are the
// active server's, and go with its term. A count by role is told again for ten seconds; the lock is held while one
// is made, so that many who ask share it. Measure is one goroutine's; the rest may be called from any.
package census
