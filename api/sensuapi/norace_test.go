//go:build !race

package sensuapi

const raceAllocs = 0
