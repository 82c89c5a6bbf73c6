// Package monitor is the pure part of the monitoring plane: the objects of Sensu's
// contract, what makes one valid, and Step, which takes what is known of a check on an
// entity and a new result to what is known afterwards and what is to be done.
//
// The objects are the contract's: JSON tags are the names of its REST API,
// `pb` tags the numbers of its agent protocol (kit/tagproto); fields that a newer
// peer knows are kept. Times are Unix seconds where the contract's are. Nothing here reads a clock,
// starts a goroutine or reaches outside; values are not safe for concurrent writing.
package monitor
