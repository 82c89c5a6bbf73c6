// Package host keeps the proxies of a host: which are open, which subjects each
// needs, what each must know, and what each has taken.
//
// What always holds:
//   - A subject that several proxies need with the same token is followed once; its
//     value is decoded once and given to all of them before any stream is woken, so
//     that what goes out over one connection is written together.
//   - A proxy is kept while it is registered and a stream is open, or was within
//     Grace. When its registration ends, or its token loses the right to its
//     service, Done is closed and it is forgotten.
//   - Another registration of the same proxy is taken over in place; one for another
//     service ends it, since the certificate is another one.
//   - What a stream reads are immutable sets, without a lock.
//
// There is one lock. Nothing is called under it that waits: values are decoded,
// streams woken and subjects followed and left outside of it.
package host
