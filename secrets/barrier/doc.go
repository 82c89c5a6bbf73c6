// Package barrier stands between the secrets plane and its storage: what passes
// it downward is encrypted, what comes up was checked. It is the only holder of
// keys.
//
// Invariants. Nothing is written while sealed. A record opens only under the
// storage key that it was written under and as it was written; anything else is
// an error of kind Corrupt that names the storage key, never other bytes. A
// nonce is never used twice with a key. After Seal has returned no call that
// begins finds a key.
//
// All methods may be called from any goroutine. Reads and commits take no lock.
package barrier
