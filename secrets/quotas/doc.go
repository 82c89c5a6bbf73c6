// Package quotas holds requests to the rate limits and leases to their number, and answers for the rules (sys/quotas).
//
// The rules are part of the tables; counts are atomic and in memory, taken before a lease is stored and given back when
// its commit fails or the lease goes. A start, or a new rule, counts the leases that there are by their keys alone.
// Invariant: a root token is never refused, so an operator gets out of any rule. There is no lock here; all methods may
// be called from any goroutine.
package quotas
