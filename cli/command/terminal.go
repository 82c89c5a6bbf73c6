package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Terminal is an output that people look at. What is written to anything else is plain, whole and the same each time.
// Its words say everything; colour only makes them easier to find.
type Terminal struct {
	*os.File
	Colour bool
}

// OnTerminal is w as a Terminal where it is one; else w itself. NO_COLOR and a dumb terminal take the colour away.
func OnTerminal(w io.Writer, getenv func(string) string) io.Writer {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return w
	}
	return &Terminal{File: f, Colour: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

// Asks tells whether In is a terminal: somebody can be asked.
func (e *Env) Asks() bool {
	f, ok := e.In.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// maxLine bounds a line that is asked for.
const maxLine = 64 << 10

// Hidden asks on Err for a line of In without showing what is typed. Where In is no terminal the line is read as it is,
// and nothing behind it, so that more may be asked for; at its end there is an empty one.
func (e *Env) Hidden(prompt string) (string, error) {
	if _, err := fmt.Fprint(e.Err, prompt); err != nil {
		return "", err
	}
	if f, ok := e.In.(*os.File); ok && e.Asks() {
		text, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(e.Err)
		return strings.TrimSpace(string(text)), err
	}
	var line []byte
	for one := make([]byte, 1); len(line) <= maxLine; {
		n, err := e.In.Read(one)
		if n == 1 && one[0] != '\n' {
			line = append(line, one[0])
		}
		if n == 1 && one[0] == '\n' || errors.Is(err, io.EOF) {
			return strings.TrimRight(string(line), "\r"), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("the line is longer than %d bytes", maxLine)
}

// look is how a table is shown: the columns that there are (0: as many as needed), and whether in colour.
type look struct {
	columns int
	colour  bool
}

func lookOf(w io.Writer) look {
	t, ok := w.(*Terminal)
	if !ok {
		return look{}
	}
	columns, _, err := term.GetSize(int(t.Fd()))
	if err != nil {
		columns = 0
	}
	return look{columns, t.Colour}
}

// leastColumn is what a column keeps when a table is narrowed: less says nothing.
const leastColumn = 8

// narrow takes from the widest columns until the table fits, or each has the least.
func (l look) narrow(widths []int, gap int) {
	if l.columns == 0 {
		return
	}
	for {
		total, widest := gap*(len(widths)-1), 0
		for i, w := range widths {
			total += w
			if w > widths[widest] {
				widest = i
			}
		}
		if total <= l.columns || len(widths) == 0 || widths[widest] <= leastColumn {
			return
		}
		widths[widest] -= min(total-l.columns, max(widths[widest]-secondWidest(widths, widest), 1),
			widths[widest]-leastColumn)
	}
}

func secondWidest(widths []int, widest int) int {
	second := 0
	for i, w := range widths {
		if i != widest {
			second = max(second, w)
		}
	}
	return second
}

// cut shortens text to a width, and says so with its last sign.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

const (
	red, yellow, green, bold, reset = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[0m"
)

// stateColours are the words of states, as all planes use them.
var stateColours = map[string]string{
	"critical": red, "failed": red, "lost": red, "error": red, "2 critical": red, "down": red, "dead": red,
	"warning": yellow, "pending": yellow, "1 warning": yellow, "draining": yellow, "leaving": yellow, "left": yellow,
	"passing": green, "alive": green, "running": green, "0 ok": green, "ok": green, "ready": green, "successful": green,
}

// paint colours a cell that is a state, head lines in bold.
func (l look) paint(cell string, head bool) string {
	switch colour := stateColours[strings.ToLower(cell)]; {
	case !l.colour || cell == "":
		return cell
	case head:
		return bold + cell + reset
	case colour != "":
		return colour + cell + reset
	}
	return cell
}

// Ago is a time as tables show it: how long it is past, or ahead.
func Ago(now, t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return "-"
	}
	if d := now.Sub(t); d >= 0 {
		return short(d) + " ago"
	}
	return "in " + short(t.Sub(now))
}

// short is a duration in its largest unit, in two where the second one matters.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute && d%time.Minute >= time.Second:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 10*time.Hour && d%time.Hour >= time.Minute:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}
