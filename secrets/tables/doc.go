// Package tables is what the active server answers requests by, and who may enter while there are any.
//
// Tables is immutable: a request takes it once and goes by it to its end. Gate owns the tables of now. Invariants: a
// change is stored before it is seen, and one change follows another; while sealed, and on a standby, there are no
// tables; no request of one term is under way in the next, so none commits what it read before another server wrote.
//
// All methods of Gate may be called from any goroutine. A request that is let in holds the leadership lock for reading
// until it leaves, and may call Change meanwhile; whoever waits in Shut holds nothing that Change needs.
package tables
