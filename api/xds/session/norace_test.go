//go:build !race

package session

const fanSeeds = 2_000
