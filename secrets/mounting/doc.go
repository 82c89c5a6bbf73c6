// Package mounting makes the engines of mounts, and answers for the mounts (sys/mounts, sys/auth, sys/remount).
//
// Mounts and their engines are part of the tables. Invariants: what a mount stores is below its UUID, so a move changes
// one record; no two mounts' paths lie in each other; mounts of the plane's own can be neither made nor taken away.
// Here is what engines share: the gates of passwords and of RSA keys, keys of issuers, lockouts, each with its own
// lock, and the moves of late. Kinds is not changed once requests come; all methods may be called from any goroutine.
package mounting
