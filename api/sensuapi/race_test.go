//go:build race

package sensuapi

// raceAllocs is what the race detector adds: it makes pools forget.
const raceAllocs = 8
