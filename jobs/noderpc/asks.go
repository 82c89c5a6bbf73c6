package noderpc

import (
	"maps"
	"slices"

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

// Bytes encodes m.
func (m *LogAsk) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.Bool(pack.Bool(pack.String(appendID(b, m.Alloc), m.Task), m.Stderr), m.Follow)
		return pack.Int(pack.Bool(b, m.AtEnd), m.Offset)
	})
}

// ReadLogAsk decodes.
func ReadLogAsk(b []byte) (*LogAsk, error) {
	r, err := open(b, "logs")
	if err != nil {
		return nil, err
	}
	m := &LogAsk{Alloc: r.id(), Task: r.text(), Stderr: r.Bool(), Follow: r.Bool(), AtEnd: r.Bool(), Offset: r.Int()}
	return m, r.end("logs")
}

// Bytes encodes m.
func (m *FileAsk) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.Bool(pack.String(appendID(b, m.Alloc), m.Path), m.AtEnd)
		return pack.Bool(pack.Int(pack.Int(b, m.Offset), m.Limit), m.Follow)
	})
}

// ReadFileAsk decodes.
func ReadFileAsk(b []byte) (*FileAsk, error) {
	r, err := open(b, "file")
	if err != nil {
		return nil, err
	}
	m := &FileAsk{Alloc: r.id(), Path: r.text(), AtEnd: r.Bool(), Offset: r.Int(), Limit: r.Int(), Follow: r.Bool()}
	return m, r.end("file")
}

// Bytes encodes m.
func (m *Chunk) Bytes() []byte {
	return message(func(b []byte) []byte {
		return pack.String(pack.Bytes(pack.Int(pack.String(b, m.File), m.Offset), m.Data), m.Event)
	})
}

// ReadChunk decodes. Data belongs to b.
func ReadChunk(b []byte) (*Chunk, error) {
	r, err := open(b, "chunk")
	if err != nil {
		return nil, err
	}
	m := &Chunk{File: r.String(), Offset: r.Int(), Data: r.Bytes(), Event: r.String()}
	return m, r.end("chunk")
}

// Bytes encodes m.
func (m *ExecAsk) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.Strings(appendID(pack.String(appendID(b, m.Alloc), m.Task), m.Session), m.Command)
		return pack.Int(pack.Int(pack.Bool(b, m.TTY), int64(m.Rows)), int64(m.Columns))
	})
}

// ReadExecAsk decodes.
func ReadExecAsk(b []byte) (*ExecAsk, error) {
	r, err := open(b, "exec")
	if err != nil {
		return nil, err
	}
	m := &ExecAsk{Alloc: r.id(), Task: r.text(), Session: r.id(), Command: r.Strings(), TTY: r.Bool(),
		Rows: int(r.Int()), Columns: int(r.Int())}
	return m, r.end("exec")
}

// Bytes encodes m.
func (m *ExecInput) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.Bool(pack.Bytes(appendID(b, m.Session), m.Data), m.Close)
		return pack.Int(pack.Int(b, int64(m.Rows)), int64(m.Columns))
	})
}

// ReadExecInput decodes. Data belongs to b.
func ReadExecInput(b []byte) (*ExecInput, error) {
	r, err := open(b, "input")
	if err != nil {
		return nil, err
	}
	m := &ExecInput{Session: r.id(), Data: r.Bytes(), Close: r.Bool(), Rows: int(r.Int()), Columns: int(r.Int())}
	return m, r.end("input")
}

// Bytes encodes m.
func (m *ExecOutput) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.Bool(pack.Bool(pack.Bytes(pack.Bytes(b, m.Stdout), m.Stderr), m.StdoutClosed), m.StderrClosed)
		return pack.Int(pack.Bool(b, m.Exited), int64(m.ExitCode))
	})
}

// ReadExecOutput decodes. What was written belongs to b.
func ReadExecOutput(b []byte) (*ExecOutput, error) {
	r, err := open(b, "output")
	if err != nil {
		return nil, err
	}
	m := &ExecOutput{Stdout: r.Bytes(), Stderr: r.Bytes(), StdoutClosed: r.Bool(), StderrClosed: r.Bool(),
		Exited: r.Bool(), ExitCode: int(r.Int())}
	return m, r.end("output")
}

// Bytes encodes m.
func (m *TaskAsk) Bytes() []byte {
	return message(func(b []byte) []byte {
		return pack.Bool(pack.String(pack.String(appendID(b, m.Alloc), m.Task), m.Signal), m.All)
	})
}

// ReadTaskAsk decodes.
func ReadTaskAsk(b []byte) (*TaskAsk, error) {
	r, err := open(b, "task")
	if err != nil {
		return nil, err
	}
	m := &TaskAsk{Alloc: r.id(), Task: r.text(), Signal: r.text(), All: r.Bool()}
	return m, r.end("task")
}

// text reads a name or a path.
func (r *reader) text() string {
	s := r.String()
	if len(s) > MaxTextBytes {
		r.wrong = pack.ErrDamaged
	}
	return s
}

func appendMap(b []byte, m map[string]string) []byte {
	b = pack.Uint(b, uint64(len(m)))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		b = pack.String(pack.String(b, name), m[name])
	}
	return b
}

func (r *reader) texts() map[string]string {
	n := r.count(MaxAttributes)
	if n == 0 {
		return nil
	}
	m := map[string]string{}
	for range n {
		name := r.String()
		m[name] = r.String()
	}
	return m
}
