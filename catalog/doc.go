// Package catalog has the objects of the catalog plane: nodes, services, health checks,
// key-value pairs, sessions and records; the commands that change them, what a command gave and
// changed; and their encodings in the log, in snapshots and in events.
//
// Invariants:
//   - An object that is in a State (catalog/statestore) is never changed again.
//   - Each object is one record of kit/pack, to whose end alone fields are added. Equal objects
//     have equal bytes: maps are written in the order of their keys.
//   - The numbers of commands, verbs and kinds are on disk and are never reused.
//
// The package is pure.
package catalog
