// Package secrets holds the words of the secrets plane: requests and responses,
// what an engine is asked and what it answers, without deciding anything.
//
// An engine (package engine) reads and returns what is to be stored as operations
// of its Response; it never writes by itself. So what a request does is one
// batch, committed by the keeper whole or not at all.
package secrets
