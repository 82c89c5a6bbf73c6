// Package frame takes an event of the agent protocol apart without decoding all of it, and puts it together again. A
// Frame belongs to one goroutine.
package frame
