package safetemplate

import (
	"errors"
	"fmt"
	"time"
)

// ErrLimit is the cause of the error when a template was ended by one of its limits.
var ErrLimit = errors.New("the template was stopped")

func limit(why string) error { return fmt.Errorf("%w: %s", ErrLimit, why) }

// maxWidth bounds the width and the precision of a verb of printf.
const maxWidth = 4096

// Budget is what a run has left. It belongs to one run, and so to one goroutine.
type Budget struct {
	made, steps int
	until       time.Time
}

// Spend pays for bytes that a function is about to make.
func (b *Budget) Spend(bytes int) error {
	if bytes < 0 || bytes > b.made {
		return limit("its functions make too much text")
	}
	b.made -= bytes
	return b.clock()
}

func (b *Budget) step() error {
	if b.steps--; b.steps < 0 {
		return limit("it takes too many turns")
	}
	return b.clock()
}

func (b *Budget) clock() error {
	if time.Now().After(b.until) {
		return limit("it takes too long")
	}
	return nil
}

// escaped calls a function whose text is at most so many times as long as what it is given.
func (b *Budget) escaped(times int, f func(...any) string, args []any) (string, error) {
	n := len(args)
	for _, a := range args {
		n += size(a)
	}
	if err := b.Spend(n * times); err != nil {
		return "", err
	}
	return f(args...), nil
}

// printf pays as if each verb wrote the longest of the arguments, each byte of it as four.
func (b *Budget) printf(format string, args ...any) (string, error) {
	verbs, width, err := measure(format)
	if err != nil {
		return "", err
	}
	longest := 0
	for _, a := range args {
		longest = max(longest, size(a))
	}
	if err := b.Spend(len(format) + verbs*width + (verbs+len(args))*4*(longest+16)); err != nil {
		return "", err
	}
	return fmt.Sprintf(format, args...), nil
}

// measure counts the verbs of a format and finds the largest width or precision.
func measure(format string) (verbs, widest int, err error) {
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		verbs++
		n := 0
	verb:
		for i++; i < len(format); i++ {
			switch c := format[i]; {
			case c >= '0' && c <= '9':
				if n = n*10 + int(c-'0'); n > maxWidth {
					return 0, 0, fmt.Errorf("printf: a width above %d", maxWidth)
				}
				widest = max(widest, n)
			case c == '*':
				return 0, 0, errors.New("printf: a width that an argument sets")
			case c == '.' || c == '[' || c == ']':
				n = 0
			case c == '+' || c == '-' || c == '#' || c == ' ':
			default:
				break verb
			}
		}
	}
	return verbs, widest, nil
}

// size is at most how long a value's text is, near enough: data is decoded JSON, and what functions made of it.
func size(v any) (n int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return 4 * len(v)
	case map[string]any:
		for k, inner := range v {
			n += len(k) + 2 + size(inner)
		}
		return n + 5
	case []any:
		for _, inner := range v {
			n += 1 + size(inner)
		}
		return n + 2
	case map[string]string:
		for k, inner := range v {
			n += len(k) + 2 + len(inner)
		}
		return n + 5
	case nil, bool, int, int64, float64, uint64:
		return 32
	}
	return len(fmt.Sprint(v))
}
