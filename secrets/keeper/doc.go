// Package keeper takes one request of the secrets plane through its steps: route,
// token, policy, engine, commit. It holds what is unsealed while it is, and nothing else does.
//
// Invariants. While sealed no request is answered but those of the seal itself.
// A request is allowed by exactly one rule, judged before its engine sees it.
// What a request stores is one commit; a reply is given after it. A token that
// ended is not found by any request that begins after the commit that ended it.
//
// All exported methods may be called from any goroutine. Reads take no lock that a write holds over its commit.
package keeper
