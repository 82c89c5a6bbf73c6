// Package policies answers for policies, for those of passwords, and for what they allow whom.
//
// Policies are part of the tables: one that does not parse is never stored, and a change makes the compiled rules of
// all tokens anew. The policies root and response-wrapping cannot be changed. There is no state here; any goroutine
// may call.
package policies
