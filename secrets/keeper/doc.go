// Package keeper is the line that a request of the secrets plane goes down: route, authorise, record, handle, commit,
// record, reply. State has owners in packages of their own; here is the order in which a request meets them.
//
// Invariants. While sealed no request is answered but those of the seal itself. A request is allowed by exactly one
// rule, judged before its engine sees it. What a request stores is one commit; a reply is given after it. A token that
// ended is not found by any request that begins after the commit that ended it.
//
// All exported methods may be called from any goroutine. Reads take no lock that a write holds over its commit.
package keeper
