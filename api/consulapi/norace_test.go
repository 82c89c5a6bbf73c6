//go:build !race

package consulapi

const raceAllocs = 0
