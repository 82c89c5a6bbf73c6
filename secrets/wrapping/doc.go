// Package wrapping puts an answer where one reader finds it once, and answers sys/wrapping.
//
// An answer lies, as its reader will get it, in the cubbyhole of a token of one use that is made in the commit of what
// the request itself stores. Invariant: it is given once at most. Whoever opens it ends its token under the lock of the
// tokens' tree, in one commit, before the answer is given. There is no state here; any goroutine may call.
package wrapping
