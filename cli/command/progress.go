package command

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress tells on a terminal how far a long task is: nothing in its first two seconds, then one line that is
// written over, and is gone at the end. Elsewhere it is silent. It is used by one goroutine.
type Progress struct {
	to          io.Writer // nil: silent
	what, unit  string
	total, done int64 // total 0: nobody knows
	bytes       bool
	begun, last time.Time
	now         func() time.Time
	width       int
}

const (
	progressAfter = 2 * time.Second
	progressEvery = 250 * time.Millisecond
)

// Progress begins a task of so many units; 0 is "nobody knows".
func (e *Env) Progress(what, unit string, total int64) *Progress {
	p := &Progress{what: what, unit: unit, total: total, begun: time.Now(), now: time.Now}
	if t, ok := OnTerminal(e.Err, e.Getenv).(*Terminal); ok {
		p.to = t
	}
	return p
}

// Bytes begins a task that moves bytes.
func (e *Env) Bytes(what string, total int64) *Progress {
	p := e.Progress(what, "", total)
	p.bytes = true
	return p
}

// Add counts what was done.
func (p *Progress) Add(n int64) {
	p.done += n
	if p.to == nil {
		return
	}
	now := p.now()
	if now.Sub(p.begun) < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	p.write(p.line(now.Sub(p.begun)))
}

// Write implements io.Writer: each byte is one done.
func (p *Progress) Write(b []byte) (int, error) {
	p.Add(int64(len(b)))
	return len(b), nil
}

// End takes the line away.
func (p *Progress) End() {
	if p.width > 0 {
		p.write("")
		fmt.Fprint(p.to, "\r")
	}
}

// write puts a line in place of the one before it.
func (p *Progress) write(line string) {
	n := len([]rune(line))
	fmt.Fprintf(p.to, "\r%s%s", line, strings.Repeat(" ", max(p.width-n, 0)))
	p.width = n
}

// line is what is shown after so long.
func (p *Progress) line(took time.Duration) string {
	rate := float64(p.done) / took.Seconds()
	b := p.what + ": " + p.amount(p.done)
	if p.total > 0 {
		b += " of " + p.amount(p.total)
	}
	if p.unit != "s" { // time passes at one rate
		b += ", " + p.amount(int64(rate)) + "/s"
	}
	if p.total > p.done && rate > 0 {
		b += ", " + short(time.Duration(float64(p.total-p.done)/rate*float64(time.Second))) + " left"
	}
	return b
}

func (p *Progress) amount(n int64) string {
	if !p.bytes {
		return strings.TrimSpace(thousands(n) + " " + p.unit)
	}
	const mebi = 1 << 20
	if n < mebi {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/mebi)
}

func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
