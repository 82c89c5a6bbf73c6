// Package execsession is the client's side of an exec session: its terminal, its streams and its end.
package execsession

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/ws"
	"golang.org/x/term"
)

// What goes over the WebSocket of an exec session.
type (
	execData struct {
		Data  []byte `json:"data,omitempty"`
		Close bool   `json:"close,omitempty"`
	}
	execSize struct {
		Height int `json:"height"`
		Width  int `json:"width"`
	}
	execInput struct {
		Stdin *execData `json:"stdin,omitempty"`
		Size  *execSize `json:"tty_size,omitempty"`
	}
	execOutput struct {
		Stdout, Stderr *execData
		Exited         bool
		Result         *struct {
			ExitCode int `json:"exit_code"`
		}
	}
)

// execHeartbeat keeps the session open while nobody types.
const execHeartbeat = 10 * time.Second

// Limits are those of the connection that a session goes over.
var Limits = &ws.Limits{MessageBytes: 4 << 20, Idle: 24 * time.Hour}

// Run runs a session over conn, which it closes, and ends with the command's exit code.
func Run(e *command.Env, conn *ws.Conn, tty, input bool) error {
	defer conn.Close()
	out := &execConn{conn: conn}
	if f, ok := e.In.(*os.File); ok && tty && term.IsTerminal(int(f.Fd())) {
		before, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return fmt.Errorf("switch the terminal to raw: %w", err)
		}
		defer func() { _ = term.Restore(int(f.Fd()), before) }() // as well as it can be
		stop := out.sizes(int(f.Fd()))
		defer stop()
	}
	if input {
		go out.stdin(e.In) // it ends with the process: a read of a terminal cannot be ended
	} else {
		_ = out.send(execInput{Stdin: &execData{Close: true}}) // the read below tells
	}
	done := make(chan struct{})
	defer close(done)
	go out.heartbeat(done)
	return output(e, conn)
}

// output prints what the command writes until it ends.
func output(e *command.Env, conn *ws.Conn) error {
	var buf []byte
	for {
		text, err := conn.Read(buf[:0])
		if err != nil {
			return fmt.Errorf("the session broke off: %w", err)
		}
		buf = text
		var o execOutput
		if err := json.Unmarshal(text, &o); err != nil {
			return fmt.Errorf("the session sent what is no frame: %w", err)
		}
		for _, part := range []struct {
			to   io.Writer
			data *execData
		}{{e.Out, o.Stdout}, {e.Err, o.Stderr}} {
			if part.data != nil {
				if _, err := part.to.Write(part.data.Data); err != nil {
					return err
				}
			}
		}
		if o.Exited {
			if o.Result != nil && o.Result.ExitCode != 0 {
				return command.ExitCode(o.Result.ExitCode)
			}
			return nil
		}
	}
}

// execConn is the writing side, which several goroutines use.
type execConn struct {
	mu   sync.Mutex
	conn *ws.Conn
}

func (e *execConn) send(in execInput) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.conn.Write(text); err != nil {
		return err
	}
	return e.conn.Flush()
}

// stdin passes standard input on to its end.
func (e *execConn) stdin(from io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if n > 0 && e.send(execInput{Stdin: &execData{Data: buf[:n]}}) != nil {
			return
		}
		if err != nil {
			_ = e.send(execInput{Stdin: &execData{Close: true}}) // the reader of the session tells
			return
		}
	}
}

func (e *execConn) heartbeat(done <-chan struct{}) {
	t := time.NewTicker(execHeartbeat)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			if e.send(execInput{}) != nil {
				return
			}
		}
	}
}

// sizes tells the size of the terminal now and when it changes.
func (e *execConn) sizes(fd int) (stop func()) {
	tell := func() {
		if width, height, err := term.GetSize(fd); err == nil {
			_ = e.send(execInput{Size: &execSize{Height: height, Width: width}}) // the reader of the session tells
		}
	}
	tell()
	return onResize(tell)
}
