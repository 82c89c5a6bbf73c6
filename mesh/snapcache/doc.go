// Package snapcache holds, on a server, a value for each subject of the mesh that
// somebody follows, made from the catalog's newest State and encoded once for all.
//
// Cache is a feed.Source. What always holds:
//
//   - A value equals what is made from scratch of a State at its index or later; no change is lost.
//   - A follower sees the values of a subject in order, each once, and none after stop.
//   - A value's index is that of the newest write that it takes into account, and not lower than that of another
//     value which any server told of an older State. So of two servers' values the one with the greater index is
//     the newer, however each of them merged the changes.
//   - A change costs one build for each subject whose inputs it touched, whatever the number of
//     followers; a build that gives the same bytes says so (Since), and no agent that has them is sent anything.
//   - No lock is held while a view is made or encoded. While set is called, only the
//     follower's own lock is.
//
// From a change straight to what it touches: each subject is kept under what it was made of
// (service names, config entries, the roots), so that a batch costs one look-up for
// each thing that it changed. What is touched is a set: a subject waits in it once, however often
// it changes, which bounds the work that can pile up by the number of followed subjects.
//
// The first change of a subject is acted on at once; those within the window after it are merged.
package snapcache
