// Package identities finds whose a login is, and keeps logins and changes of entities and groups in order.
//
// Invariants. A change of identities is alone until it is committed: logins and other changes read what it changes.
// Logins of one person follow each other where they change something; those that change nothing take no lock. Locks:
// the name of a login's record first, then the one lock, which logins hold for reading and operators for writing over
// their commit. All methods may be called from any goroutine.
package identities
