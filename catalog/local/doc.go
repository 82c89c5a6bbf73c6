// Package local is what this host registered: its services, their checks, and
// the anti-entropy that makes the catalog say the same.
//
// Invariants:
//   - The agent's state wins for its own node, except the tags of services with
//     EnableTagOverride. After a full sync without failures the catalog holds
//     exactly the agent's services and checks (beside serfHealth and the server's own service).
//   - A *Service or *Check that was handed out never changes: a change replaces it.
//   - A heartbeat that does not change a status stays in this process.
//   - A definition from a file wins over one from the API with the same id.
//   - A registration with Persist is on stable storage before the call returns.
//
// All methods are safe for concurrent use. One goroutine (in Run) talks to the
// servers; callers hand it work by marking entries, so its queue is bounded by
// the number of services and checks: newest per id. A caller that registers waits until a
// sync that saw its change was attempted, at most Config.SyncWait. No lock is
// held while calling servers, disks or observers.
//
// Not here: serving HTTP, reading configuration files.
package local
