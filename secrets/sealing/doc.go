// Package sealing opens and closes the store of keys, and begins and ends leadership.
//
// Invariants. Shares, keys and what was read with them are forgotten when the seal closes, those of a change under way
// when the term ends too. A seal, a rekey, a migration and the keyring that goes with it are one commit, and what
// cannot be given out (a share that cannot be encrypted) never holds. The tables are set here alone, and only while
// there are keys. One lock orders all of it. It is taken after leadership was shut (tables.Gate.Shut) and before the
// tables' lock; it is held over the storage and over an automatic seal's service, and no request needs it but those
// of the seal.
package sealing
