package nomadrows

import (
	"log/slog"
	"time"
)

// The methods of nodes' agents, with what goes in and comes out as JSON.
const (
	// CallRestart takes a TaskCall: the task, or all that run, or with AllTasks those that have ended too. No answer.
	CallRestart = "alloc.restart"
	// CallSignal takes a TaskCall. No answer.
	CallSignal = "alloc.signal"
	// CallAllocStats takes a TaskCall; the answer is passed on (AllocResourceUsage).
	CallAllocStats = "alloc.stats"
	// CallCollect takes a TaskCall, or one without an allocation: all that have ended. No answer.
	CallCollect = "alloc.gc"
	// CallChecks takes a TaskCall; the answer is passed on: the checks of native services by their IDs.
	CallChecks = "alloc.checks"
	// CallHostStats takes an empty object; the answer is passed on (HostStats).
	CallHostStats = "node.stats"
	// CallMeta takes a MetaCall; the answer is passed on (NodeMetaResponse).
	CallMeta = "node.meta"
	// CallList takes a FileCall; the answer is []FileInfo.
	CallList = "fs.ls"
	// CallStat takes a FileCall; the answer is FileInfo.
	CallStat = "fs.stat"
	// ReadFile takes a FileCall; the stream is Frames.
	ReadFile = "fs.read"
	// ReadLogFrames takes a LogCall; the stream is Frames.
	ReadLogFrames = "fs.logs"
	// ReadMonitor takes a MonitorCall; the stream is Frames: the log of the node's agent, from now on.
	ReadMonitor = "node.monitor"
	// TalkExec takes an ExecCall; the streams are ExecInput and ExecOutput.
	TalkExec = "alloc.exec"
)

// TaskCall names an allocation and one of its tasks.
type TaskCall struct {
	AllocID, Task, Signal string
	AllTasks              bool
}

// MonitorCall follows the log of another process.
type MonitorCall struct {
	Level slog.Level // lines of it and above
	JSON  bool       // lines are objects
}

// MetaCall asks a node for its metadata, with Change after a change.
type MetaCall struct {
	Change bool
	Set    map[string]string
	Unset  []string
}

// FileCall names a file below an allocation's folder. A path that leads out of it is Denied.
type FileCall struct {
	AllocID, Path string
	Offset        int64
	Limit         int64  // 0: to the end
	Origin        string // start ("") or end: what Offset counts from
	Follow        bool   // go on when more is written, until the stream is closed
}

// LogCall asks for a task's log across its rotated files.
type LogCall struct {
	AllocID, Task string
	Type          string // stdout or stderr
	Origin        string // start ("") or end
	Offset        int64  // from Origin, in bytes; from the end it counts backwards
	Follow        bool
}

// FileInfo is a file or folder.
type FileInfo struct {
	Name        string
	IsDir       bool
	Size        int64
	FileMode    string
	ModTime     time.Time
	ContentType string `json:",omitempty"`
}

// Frame is a piece of a file or log. One without Data, File and FileEvent is a heartbeat.
type Frame struct {
	Offset    int64  `json:",omitempty"`
	Data      []byte `json:",omitempty"`
	File      string `json:",omitempty"`
	FileEvent string `json:",omitempty"` // file deleted, file truncated
}

// ExecCall runs a command in a task.
type ExecCall struct {
	AllocID, Task string
	Command       []string
	TTY           bool
}

// ExecInput is what the client of an exec session sends.
type ExecInput struct {
	Stdin   *ExecData     `json:"stdin,omitempty"`
	TTYSize *TerminalSize `json:"tty_size,omitempty"`
}

// ExecData is bytes of a stream, or its end.
type ExecData struct {
	Data  []byte `json:"data,omitempty"`
	Close bool   `json:"close,omitempty"`
}

// TerminalSize is the size of the client's terminal.
type TerminalSize struct {
	Height int `json:"height,omitempty"`
	Width  int `json:"width,omitempty"`
}

// ExecOutput is what the node of an exec session sends. After Exited nothing follows.
type ExecOutput struct {
	Stdout *ExecData   `json:"stdout,omitempty"`
	Stderr *ExecData   `json:"stderr,omitempty"`
	Exited bool        `json:"exited,omitempty"`
	Result *ExecResult `json:"result,omitempty"`
}

// ExecResult is how the command ended; the code 0 is left out.
type ExecResult struct {
	ExitCode int `json:"exit_code,omitempty"`
}
