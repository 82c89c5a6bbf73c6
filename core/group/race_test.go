//go:build race

package group

// raceStride leaves out cases under the race detector, which makes each ten times slower: all of them run without it.
const raceStride = 7
