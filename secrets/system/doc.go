// Package system answers sys/: a table of rows, each with the owner of the state that it shows or changes.
//
// It has no state. A path is one row's: exact, or below one that ends in '/'. What must answer while the server is
// sealed is no row's. Rows are called from any goroutine, after the request was judged.
package system
