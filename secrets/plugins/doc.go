// Package plugins runs secrets engines and auth methods that are programs of their own, by Vault's plug-in protocol: an
// experiment, which is off unless the configuration names a folder of them.
//
// The catalog is records of the barrier: which program may be run under which name, with the SHA-256 that it must have.
// Each mount has a process of its own, started when its server becomes the active one, again at the next request after
// it died, ever more seldom where it dies soon, and ended with the term. How a process is run is behind Runner.
//
// Invariants. What a program stores lies below its mount's prefix, and is written in the term that started it alone. A
// call has a deadline, and its mount a bound of calls; so a program that hangs holds up nobody but who asks it. Sealing
// and stepping down cancel calls and kill processes without waiting; Run waits for all of it at its end. Names that are
// built in cannot be taken. All methods may be called from any goroutine.
package plugins
