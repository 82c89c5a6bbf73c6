//go:build !race

package session

const fanSeeds = 10_000
