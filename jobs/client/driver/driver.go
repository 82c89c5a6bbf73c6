// Package driver says what a task driver is: what starts tasks, finds them again after the agent's restart, and ends
// them. Each driver is a package below.
//
// What always holds:
//   - Start returns when the task runs, or an error. An error of kind Unavailable may pass (the restart policy
//     counts it); any other is the job's.
//   - State of a Running task is stored before anything else happens with it. Recover gets the same bytes in another
//     process and finds the task untouched, or says NotFound when it is gone without a trace.
//   - Wait may be called again and by many. Its answer is the task's end, whoever caused it; an error says that the
//     end is not known, or that ctx ended.
//   - A ctx that ends never ends a task.
//   - After Remove nothing of the task is left but its folder.
package driver

import (
	"context"
	"io"
	"time"

	"corbel.dev/corbel/jobs/client/tasklog"
)

// Driver starts tasks of one kind.
type Driver interface {
	// Fingerprint finds out whether tasks can be started here. It takes seconds at most.
	Fingerprint(ctx context.Context) Fingerprint
	Start(ctx context.Context, t *Task) (Running, error)
	Recover(ctx context.Context, t *Task, state []byte) (Running, error)
}

// Fingerprint is what a driver found.
type Fingerprint struct {
	Detected, Healthy bool
	Text              string            // why
	Attributes        map[string]string // "driver.docker.version"
}

// Task is what is to run.
type Task struct {
	Alloc, Name string // ids
	Job, Group  string
	User        string
	Config      map[string]any // interpolated
	Env         map[string]string
	Dirs        Dirs
	Resources   Resources
	Logs        tasklog.Limits
	NoLogs      bool
	Ports       []Port
	Network     Network
	Mounts      []Mount
}

// Network is the network that a task joins.
type Network struct {
	Mode string // of the group: host ("" too), bridge, none, cni/NAME
	// Path is the allocation's namespace, "" where it has the host's. Container is that which holds it, for drivers
	// of containers.
	Path, Container string
	Hostname        string
	// Hosts and Resolv are files that the task sees as /etc/hosts and /etc/resolv.conf; "" shows it the host's. DNS is
	// whether the job says how names are resolved.
	Hosts, Resolv string
	DNS           bool
}

// Dirs are a task's folders on the host.
type Dirs struct {
	Task    string // holds local, secrets and tmp
	Shared  string // alloc: shared by the tasks of an allocation
	Logs    string
	Private string // the driver's own, beside the task's
}

// Resources are what a task may use.
type Resources struct {
	CPU, MemoryMB, MemoryMaxMB int64
	TotalCPU                   int64 // of the node, in MHz
	Cores                      []uint16
}

// Port is a port of the allocation.
type Port struct {
	Label, HostIP string
	Value, To     int
}

// Inside is the port as tasks listen on it.
func (p *Port) Inside() int {
	if p.To > 0 {
		return p.To
	}
	return p.Value
}

// Mount is a folder of the host in a task.
type Mount struct {
	Host, Task string
	ReadOnly   bool
}

// Running is a task that was started.
type Running interface {
	// State is what Recover needs.
	State() []byte
	Wait(ctx context.Context) (Exit, error)
	// Stop sends a signal, and kills after the timeout. It returns when the task is gone.
	Stop(ctx context.Context, signal string, timeout time.Duration) error
	Signal(name string) error
	Usage() (Usage, error)
	// Exec runs a command where the task runs.
	Exec(ctx context.Context, e Exec) (code int, err error)
	// Remove cleans up after the end.
	Remove() error
}

// Exit is how a task ended.
type Exit struct {
	Code   int
	Signal int
	OOM    bool
	Text   string // of the driver, beyond the numbers
}

// OK reports whether the task did what it should.
func (e Exit) OK() bool { return e.Code == 0 && e.Signal == 0 && e.Text == "" }

// Usage is what a task uses.
type Usage struct {
	CPUPercent  float64
	CPUTicks    float64 // MHz
	UserPercent float64
	SysPercent  float64
	MemoryBytes uint64 // resident
	PIDs        int
	At          time.Time
}

// Exec is a command.
type Exec struct {
	Command        []string
	TTY            bool
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan [2]int // rows, columns
}
