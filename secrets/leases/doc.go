// Package leases makes, renews and revokes what engines give for a time, and answers sys/leases.
//
// Invariants. A lease is in the batch of what its engine stores, with an entry in the index of time of its mount that
// is never later than its end. It ends with its token: that commit makes it due. An engine that fails is asked again,
// ever more seldom, and its lease is kept until it said yes. Each mount is revoked at a pace of its own (pace, pure):
// one whose engine hangs holds up no other, and 200 revocations at most are under way. Locks: the name of a lease,
// then the tokens' tree; the targets' lock is held for a look.
//
// All methods may be called from any goroutine. What Start begins ends with its context.
package leases
