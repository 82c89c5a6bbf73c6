//go:build !race

package token

const raced = false
