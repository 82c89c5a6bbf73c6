// Package fault is the one fault library: it lets the parent of a Corbel process
// break that process's disk, network and clock while it runs. Tests, the bench
// and the lab use it alike.
//
// It is in every build and dormant: FromEnv returns nil unless the environment
// names a descriptor that the parent left open for it, and every method of a nil
// *Injector gives the real thing. There is no other way in: no port, no file, no
// signal. The descriptor is a stream socket; over it go JSON lines, one Command
// and one Reply at a time, in order.
//
// An armed process plugs in FS, Clock and Net before it starts anything and runs
// Run beside its parts. When the parent goes away all faults are lifted, so that
// an orphan is a healthy process. At most MaxRules rules may be in force.
//
// Freezing is not a command: the parent sends SIGSTOP (Control.Freeze).
package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/vfs"
)

// MaxRules bounds the rules in force in one process.
const MaxRules = 256

// The names of the environment that arms a process.
const (
	// EnvFD holds the number of the inherited descriptor.
	EnvFD = "CORBEL_FAULT_FD"
	// EnvBegin holds a JSON list of commands that are in force from the first instruction on.
	EnvBegin = "CORBEL_FAULT_BEGIN"
)

// The values of Command.Do.
const (
	DoDisk = "disk" // inject a disk rule: Name, Ops, Glob, Skip, Count, Error, Short, Delay, Stall, FlipBit
	// let the disk below the folder Glob lose its power: Name is the folder of the journal, for
	// vfs.LosePower; only among EnvBegin
	DoPower = "power"
	// inject a network rule: Name, Ops (dial, read, write), Glob (peer host:port), Skip, Count, Error,
	// Delay, Stall
	DoNet   = "net"
	DoClock = "clock" // set the clock: Offset, Rate
	DoSink  = "sink"  // write every metric of the libraries to a unix socket in line: Name, Glob (its path)
	DoCards = "cards" // show network cards with these counters instead of the machine's: Cards
	// make each commit of the secrets plane Count times, as a defect that stores more than it needs; 1
	// is right
	DoRepeat = "repeat"
	DoLift   = "lift"   // end the rule called Name
	DoClear  = "clear"  // end all rules and set the clock right
	DoStatus = "status" // change nothing; every reply carries the status
)

// Command is one order of the parent. Which fields count depends on Do.
type Command struct {
	ID   uint64 `json:"id"`
	Do   string `json:"do"`
	Name string `json:"name,omitempty"`
	// Ops are operation kinds separated by commas; empty means all.
	Ops string `json:"ops,omitempty"`
	// Glob is a path or a peer, as vfs.Match reads it; empty means all.
	Glob  string `json:"glob,omitempty"`
	Skip  int    `json:"skip,omitempty"`
	Count int    `json:"count,omitempty"`
	// Error is EIO, ENOSPC, EROFS, EDQUOT, ENOENT, EACCES, ECONNRESET, ECONNREFUSED or EHOSTUNREACH.
	Error string `json:"error,omitempty"`
	// Short is how many bytes of a write still reach the file; negative means half.
	Short int `json:"short,omitempty"`
	// Delay is in nanoseconds, as are all durations here.
	Delay   time.Duration `json:"delay,omitempty"`
	Stall   bool          `json:"stall,omitempty"`
	FlipBit bool          `json:"flipBit,omitempty"`
	// Offset moves the wall clock; Rate is how fast time passes, zero meaning 1.
	Offset time.Duration `json:"offset,omitempty"`
	Rate   float64       `json:"rate,omitempty"`
	// Cards are counters of network cards by card and name, as drivers call them. They stand until the next ones, or
	// until DoClear.
	Cards map[string]map[string]uint64 `json:"cards,omitempty"`
}

// Reply answers the Command of the same ID.
type Reply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
	Status
}

// Status tells what is in force and what it has done.
type Status struct {
	PID    int           `json:"pid"`
	Disk   []vfs.Status  `json:"disk,omitempty"`
	Net    []NetStatus   `json:"net,omitempty"`
	Offset time.Duration `json:"offset,omitempty"`
	Rate   float64       `json:"rate,omitempty"`
}

var codes = map[string]error{
	"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "EROFS": syscall.EROFS, "EDQUOT": syscall.EDQUOT,
	"ENOENT": fs.ErrNotExist, "EACCES": os.ErrPermission,
	"ECONNRESET": syscall.ECONNRESET, "ECONNREFUSED": syscall.ECONNREFUSED, "EHOSTUNREACH": syscall.EHOSTUNREACH,
}

func parseError(code string) (error, error) {
	if code == "" {
		return nil, nil
	}
	if err, ok := codes[code]; ok {
		return err, nil
	}
	return nil, fmt.Errorf("unknown error code %q", code)
}

var errNoEffect = errors.New("the rule has no effect: set error, short, delay, stall or flipBit")

func (c Command) diskRule() (vfs.Rule, error) {
	ops, err := vfs.ParseOp(c.Ops)
	if err != nil {
		return vfs.Rule{}, err
	}
	code, err := parseError(c.Error)
	if err != nil {
		return vfs.Rule{}, err
	}
	rule := vfs.Rule{Name: c.Name, Ops: ops, Glob: c.Glob, Skip: c.Skip, Count: c.Count,
		Err: code, Short: c.Short, Delay: c.Delay, Stall: c.Stall, FlipBit: c.FlipBit}
	if code == nil && c.Short == 0 && c.Delay <= 0 && !c.Stall && !c.FlipBit {
		return rule, errNoEffect
	}
	return rule, nil
}
