//go:build race

package consulapi

// raceAllocs is what the race detector adds: it makes pools forget.
const raceAllocs = 8
