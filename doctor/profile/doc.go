// Package profile keeps low-rate profiles of this process and says in words where its time goes.
//
// A CPU profile of two seconds is taken each minute; contention and memory are what the runtime counts anyway, read
// as differences. Blocked goroutines are counted in these two seconds, and without a pause from when something is
// slow until nothing was for a while: counting them costs each wait something, so a healthy process does not pay for
// it all the time. When something is slow, goroutines are looked at ten times within two seconds: what they wait for
// in a system call or in the network no profile of blocking shows.
//
// Invariants:
//   - The newest of each kind are kept in memory, Kept at most, MaxBytes each; nothing is written to disk.
//   - Stacks are program locations. No labels, arguments or values are in a profile.
//   - The runtime's profiler has one user at a time: whoever asks over HTTP goes first (Yield).
//   - Looking at goroutines stops the world for as long as their number asks: above maxGoroutines it is not done.
package profile
