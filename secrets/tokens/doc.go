// Package tokens makes, renews, uses and ends tokens, and answers auth/token/.
//
// Invariants. Nothing is made below a token that has ended: whoever makes holds the tree for reading, whoever ends
// holds it for writing, over their commits. A token ends at once, with what it keeps and with its leases made due;
// what is below it follows in bounded commits, and is written down as going until it has ended, so a crash leaves
// nothing alive. A use of a limited token is taken off its record durably before it counts; no use is had twice.
// Locks: the name of a token first, then the tree; the uses in memory are held for a look.
//
// All methods may be called from any goroutine. Work on many tokens goes in steps of flight.Bulk.
package tokens
