// Package rights says whose a token is and what it may do.
//
// It keeps tokens with their compiled rules and the identities that they are of, in shards with a lock each that is
// never held over the storage. Invariants: a commit that changes a token or an identity drops it before the commit's
// caller goes on (Committed), so a token that ended is found by no request that begins later; what was read while that
// happened is not kept. A token's rules are those of the tables of now: other tables have other rules. Both caches are
// bounded and begin anew when they are full. All methods may be called from any goroutine.
package rights
