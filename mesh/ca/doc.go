// Package ca is the mesh's built-in certificate authority: it makes roots, rotates
// them with cross-signing, and issues the certificates that services and agents
// prove themselves with.
//
// It keeps nothing and owns no goroutine: configuration, roots and the time come
// in as arguments, certificates go out as values. Only randomness is taken from the
// system, as keys and serial numbers must be. All functions may be called from any
// goroutine; a Root must not be changed once others see it.
//
// What always holds: a certificate never outlives the root that signed it, carries
// exactly one URI (the SPIFFE id that the caller was found to have the right to) and
// none of the names of the request that were not allowed.
package ca
