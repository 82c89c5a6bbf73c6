// Package policy decides what a token may do: policies in Vault's language,
// compiled once per distinct set to an ACL that is asked for each request.
//
// The chosen rule alone decides: the exact one, else the best pattern (contract
// 2.4). Rules are merged only where the text of their path is the same. Where
// nothing matches, nothing is allowed. Everything is pure; a compiled ACL is
// immutable and safe for any number of goroutines.
package policy
