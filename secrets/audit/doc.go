// Package audit records each request and each answer with the devices that an
// operator enabled, in Vault's form (contract, section 5).
//
// Invariants:
//   - An entry is encoded once, with its secrets apart; each device puts in its own keyed hashes of them.
//   - Record returns nil only after a device that can tell took the entry whole. Devices that cannot tell (discard,
//     a socket over UDP) count only where there is no other.
//   - Devices do not wait for each other. One that takes longer than BlockedAfter over a write is passed by from then
//     on, until that write ends; one that fails is passed by for RetryAfter.
//   - What waits for a device is bounded, and written in as few writes as there are (group commit without a timer).
//
// A Device has one goroutine, which Open starts and Close ends. All methods may be called from any.
package audit
