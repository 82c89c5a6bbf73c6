//go:build race

package keeper

// raced tells that pools forget: the race detector makes them.
const raced = true
