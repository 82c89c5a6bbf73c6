// Package topic tells those who wait that something changed.
//
// It has three parts that know nothing of what the subjects mean:
//
//   - Waiters wakes everyone who waits for the next change of a subject.
//   - Lengths remembers which lengths of prefix are being watched, so that a
//     change of one key finds all watched prefixes above it with one lookup per length.
//   - Streams keeps the last events of each subject that somebody follows, encoded
//     once and shared by all, so that a follower that comes back goes on where it stopped.
//
// Invariants: a wake or an event is never lost to one who watched before it;
// a subject that nobody watches takes no memory (a stream: not after its age
// bound has passed) and costs a map lookup per change; no lock is held while
// encoding, sending or waking. Wake-ups without cause are allowed.
//
// Bounds: a stream's ring is bounded by count, bytes and age. A follower that
// falls behind it, or asks for an index that it no longer holds, gets
// ErrReset and must read the state anew. A slow follower holds up nobody.
//
// Nothing here owns a goroutine.
package topic
