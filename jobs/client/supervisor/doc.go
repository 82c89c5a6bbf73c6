// Package supervisor keeps a process alive, logged and accounted for while the agent that started it comes and goes.
//
// The supervisor is this binary, run again with ChildCommand: it starts the process in a session of its own, writes
// its output to rotated files, and notes how it ended. Nothing passes between it and the agent after the start but
// files in its folder, each written whole and fsynced:
//
//	spec.json   what to run; written by the agent
//	pids.json   the supervisor and the process, with their start times, so that a reused pid is not taken for them
//	exit.json   how the process ended, and that nothing of it is left
//
// What always holds:
//   - Signals for the agent's session, its terminal or its parent do not reach the process.
//   - When the main process has ended, everything that descends from it is killed, also what left its process group:
//     the supervisor is the parent of their orphans (on Linux).
//   - exit.json is there before the supervisor ends. When a supervisor is gone without it, it was killed: then Wait
//     kills what is left of the process and says that the end is not known.
//   - A Process may be used by any number of goroutines.
package supervisor

import (
	"time"

	"corbel.dev/corbel/jobs/client/tasklog"
	"corbel.dev/corbel/kit/procgroup"
)

// ChildCommand is the command line's word that makes a process a supervisor: it calls Main with what follows.
const ChildCommand = "task-supervisor"

// OwnCommand runs this process's own binary as a supervisor, also after the file was replaced by a newer one.
func OwnCommand() []string { return procgroup.Own(ChildCommand) }

// Spec is what to run.
type Spec struct {
	Command string
	Args    []string // without the command
	Env     []string
	Dir     string
	User    string // "" is the agent's
	Logs    Logs
	Network *Network   // nil: the host's
	Isolate *Isolation // nil: as the agent
}

// Network is the network that a process is in.
type Network struct {
	Path     string  // of the namespace
	Hostname string  // "" is the host's
	Files    []Mount // that lie over those of the host, such as /etc/hosts
}

// Logs are where the output goes; no Dir drops it.
type Logs struct {
	Dir, Task string
	Limits    tasklog.Limits
}

// Isolation is what keeps a process apart from the host (isolate_linux.go). Dir and the paths of the command are then
// inside of Root.
type Isolation struct {
	Root    string   // its file system
	Mounts  []Mount  // inside of Root
	Joins   []string // files of control groups to join
	HostPID bool
	HostIPC bool
	Caps    []string // that it keeps
}

// Mount is a folder or file of the host inside of Root.
type Mount struct {
	Host, Inside       string
	ReadOnly, Optional bool
}

// ended is exit.json.
type ended struct {
	Code, Signal int
	Error        string // why it was never started
	At           time.Time
}

// pids is pids.json.
type pids struct {
	Supervisor, Process           int
	SupervisorStart, ProcessStart uint64 // ticks since boot, 0 where that is not known
}

const (
	specFile  = "spec.json"
	pidsFile  = "pids.json"
	endedFile = "exit.json"
)
