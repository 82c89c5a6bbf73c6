// Package sealed is the storage of the secrets plane as the rest of the plane sees it: records are sealed on their way
// down (barrier) and the ones of late are kept decrypted.
//
// Invariants. A read that begins after a commit returned sees it or something later. After a commit whose outcome is
// not known, and after another server wrote a key (Drop), nothing of it is in the cache. While the barrier is sealed no
// record is given out, cached or not. Every commit carries the epoch of the current term (SetEpoch), so the storage
// refuses what a former term left behind.
//
// The cache is 64 shards, each with a lock of its own that is never held over the storage; a full shard throws out
// records of no particular order. All methods may be called from any goroutine.
package sealed
