//go:build race

package token

// raced tells that pools forget: the race detector makes them.
const raced = true
