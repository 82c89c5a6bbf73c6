// Package probe gathers a process's evidence for the doctor.
//
// It reads telemetry's registries through cursors of its own every five seconds, keeps for each series that a
// rule reads its newest window, half an hour of its levels and what is usual for it, and samples the host into
// series of the same registry: CPU, pressure, quotas, TCP peers, network cards, descriptors.
//
// Invariants:
//   - Nothing that serves requests waits for it: it only reads, on a goroutine of its own.
//   - Its memory is bounded: MaxSeries series of at most 4 kB each, topPeers peers, a fixed number of stacks and slow
//     requests.
//   - Evidence is made from memory in milliseconds, whatever state the planes are in: no lock of a plane is taken.
//   - What cannot be read on this machine is a gap that the evidence names, never a zero.
//
// What is usual is kept in a file over restarts. Times are those of the process's clock.
package probe
