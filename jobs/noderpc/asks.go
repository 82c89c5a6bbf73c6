package noderpc

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/pack"
)

// LogAsk asks for a task's output.
type LogAsk struct {
	Alloc  jobs.ID
	Task   string
	Stderr bool
	Follow bool
	// AtEnd counts Offset back from the end, else from the start.
	AtEnd  bool
	Offset int64
}

// FileAsk names a file of an allocation, from its root: "alloc/logs/web.stdout.0". Reading starts at Offset.
type FileAsk struct {
	Alloc  jobs.ID
	Path   string
	AtEnd  bool
	Offset int64
	Limit  int64 // 0: all
	Follow bool
}

// Chunk is a piece of a file. Event is "", or what happened to it ("file deleted", "file truncated").
type Chunk struct {
	File   string
	Offset int64 // of the end of Data
	Data   []byte
	Event  string
}

// ExecAsk runs a command in a task. Session is random: whoever has it may write to the command.
type ExecAsk struct {
	Alloc   jobs.ID
	Task    string
	Session jobs.ID
	Command []string
	TTY     bool
	Rows    int
	Columns int
}

// ExecInput is for the command of a session, in the order in which it is sent.
type ExecInput struct {
	Session       jobs.ID
	Data          []byte
	Close         bool // of standard input
	Rows, Columns int  // of the terminal when it changed
}

// ExecOutput is from it; the last one says Exited.
type ExecOutput struct {
	Stdout, Stderr             []byte
	StdoutClosed, StderrClosed bool
	Exited                     bool
	ExitCode                   int
}

// TaskAsk names a task; without one, all of the allocation.
type TaskAsk struct {
	Alloc  jobs.ID
	Task   string
	Signal string
	// All restarts tasks that are done too.
	All bool
}

// MonitorAsk follows the log of a process.
type MonitorAsk struct {
	Level int  // slog's: lines of it and above
	JSON  bool // lines are objects
}

// MetaAsk asks for the node's metadata, with Change after a change.
type MetaAsk struct {
	Change bool
	Unset  []string
	Set    map[string]string // wins over Unset
}

func (m *LogAsk) pass(c *pack.Coder) {
	passID(c, &m.Alloc)
	passText(c, &m.Task)
	c.Bool(&m.Stderr, &m.Follow, &m.AtEnd)
	pack.Signed(c, &m.Offset)
}

func (m *FileAsk) pass(c *pack.Coder) {
	passID(c, &m.Alloc)
	passText(c, &m.Path)
	c.Bool(&m.AtEnd)
	pack.Signed(c, &m.Offset, &m.Limit)
	c.Bool(&m.Follow)
}

func (m *Chunk) pass(c *pack.Coder) {
	c.String(&m.File)
	pack.Signed(c, &m.Offset)
	c.Bytes(&m.Data)
	c.String(&m.Event)
}

func (m *ExecAsk) pass(c *pack.Coder) {
	passID(c, &m.Alloc)
	passText(c, &m.Task)
	passID(c, &m.Session)
	c.Strings(&m.Command)
	c.Bool(&m.TTY)
	pack.Signed(c, &m.Rows, &m.Columns)
}

func (m *ExecInput) pass(c *pack.Coder) {
	passID(c, &m.Session)
	c.Bytes(&m.Data)
	c.Bool(&m.Close)
	pack.Signed(c, &m.Rows, &m.Columns)
}

func (m *ExecOutput) pass(c *pack.Coder) {
	c.Bytes(&m.Stdout, &m.Stderr)
	c.Bool(&m.StdoutClosed, &m.StderrClosed, &m.Exited)
	pack.Signed(c, &m.ExitCode)
}

func (m *TaskAsk) pass(c *pack.Coder) {
	passID(c, &m.Alloc)
	passText(c, &m.Task, &m.Signal)
	c.Bool(&m.All)
}

func (m *MetaAsk) pass(c *pack.Coder) {
	c.Bool(&m.Change)
	c.Strings(&m.Unset)
	if len(m.Unset) > MaxAttributes {
		c.Fail(pack.ErrTooMany)
	}
	passTexts(c, &m.Set)
}

func (m *MonitorAsk) pass(c *pack.Coder) {
	pack.Signed(c, &m.Level)
	c.Bool(&m.JSON)
}
