// Package plughost runs plug-ins of secrets engines and auth methods as processes, by HashiCorp's go-plugin over gRPC:
// it is the door of that library.
//
// A program is run only from the folder of plug-ins, if nobody but its owner may change it, its owner is this process's
// user or root, and its SHA-256 is the one that was registered: what was judged is the open file that is run (Linux).
// It gets an environment of its own, no core dumps, a process group of its own, which is killed as a whole, and dies
// with this process (Linux). The connection is mutual TLS with keys made for each start. Messages are bounded, and so
// is what a program may log. Kill returns when the process and all that was kept for it are gone.
package plughost
