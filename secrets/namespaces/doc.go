// Package namespaces makes, shows, locks and ends namespaces, and answers sys/namespaces.
//
// A namespace is a record, and what is in it: it takes no goroutine, and no memory but its record's until somebody asks
// for it. Invariants. A namespace has a parent that lives, and no mount beside it at its path. One that ends is going
// first, durably: nobody enters it and its tokens open nothing from then on, while its leases end with their engines.
// When the last of them went, and the last request that had entered, its records go, and then it does; so a namespace
// of the same path finds nothing of it. Its UUID and its id are never used again.
//
// All methods may be called from any goroutine.
package namespaces
