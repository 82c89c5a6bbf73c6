//go:build !race

package group

const raceStride = 1
