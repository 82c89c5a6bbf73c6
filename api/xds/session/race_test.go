//go:build race

package session

// fanSeeds is fewer: what is simulated has one goroutine.
const fanSeeds = 500
