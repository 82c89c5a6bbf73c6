package policy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"unicode"

	"corbel.dev/corbel/kit/errkind"
)

// Passwords says how passwords are drawn.
type Passwords struct {
	Length   int
	charsets []charset
	all      []rune // of all charsets, each once
}

type charset struct {
	runes []rune
	least int
}

// Bounds of passwords, as Vault has them.
const (
	leastPassword = 4
	mostPassword  = 100
)

// DefaultPasswords are those of 20 letters, digits and dashes, with one of each.
func DefaultPasswords() *Passwords {
	p := &Passwords{Length: 20}
	for _, text := range []string{"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "-"} {
		p.add(charset{[]rune(text), 1})
	}
	return p
}

func (p *Passwords) add(c charset) {
	p.charsets = append(p.charsets, c)
	have := map[rune]bool{}
	for _, r := range p.all {
		have[r] = true
	}
	for _, r := range c.runes {
		if !have[r] {
			have[r] = true
			p.all = append(p.all, r)
		}
	}
}

// ParsePasswords reads a password policy: length, and rule "charset" blocks. Errors are of kind Invalid.
func ParsePasswords(text string) (*Passwords, error) {
	p, err := parsePasswords(text)
	return p, errkind.E(errkind.Invalid, "", err)
}

func parsePasswords(text string) (*Passwords, error) {
	tree, err := read(text)
	if err != nil {
		return nil, err
	}
	p := &Passwords{}
	for _, m := range tree {
		switch m.key {
		case "length":
			if p.Length, err = whole(m); err != nil {
				return nil, err
			}
		case "rule":
			list, isList := m.value.([]any)
			if !isList {
				list = []any{m.value}
			}
			for _, v := range list {
				if err := p.rule(m.line, v); err != nil {
					return nil, err
				}
			}
		default:
			return nil, fmt.Errorf("line %d: invalid key %q: a password policy holds length and rule", m.line, m.key)
		}
	}
	least := 0
	for _, c := range p.charsets {
		least += c.least
	}
	switch {
	case p.Length < leastPassword || p.Length > mostPassword:
		return nil, fmt.Errorf("length must be from %d to %d", leastPassword, mostPassword)
	case len(p.all) == 0:
		return nil, errors.New("no charset specified")
	case least > p.Length:
		return nil, errors.New("length is less than what the rules' min_chars add up to")
	}
	return p, nil
}

func whole(m member) (int, error) {
	x, ok := m.value.(float64)
	if !ok || x != math.Trunc(x) || x < 0 || x > mostPassword {
		return 0, fmt.Errorf("line %d: %s: must be a whole number from 0 to %d", m.line, m.key, mostPassword)
	}
	return int(x), nil
}

func (p *Passwords) rule(line int, v any) error {
	kinds, ok := v.(object)
	if !ok || len(kinds) != 1 || kinds[0].key != "charset" {
		return fmt.Errorf("line %d: a rule is of the kind \"charset\": rule \"charset\" { ... }", line)
	}
	body, ok := kinds[0].value.(object)
	if list, is := kinds[0].value.([]any); is && len(list) == 1 {
		body, ok = list[0].(object)
	}
	if !ok {
		return fmt.Errorf("line %d: charset takes a block", line)
	}
	var c charset
	var err error
	for _, m := range body {
		switch m.key {
		case "charset":
			text, ok := m.value.(string)
			if !ok || text == "" {
				return fmt.Errorf("line %d: charset: must be a text that is not empty", m.line)
			}
			c.runes = []rune(text)
			for _, r := range c.runes {
				if !unicode.IsPrint(r) {
					return fmt.Errorf("line %d: charset: %q cannot be printed", m.line, r)
				}
			}
		case "min_chars", "min-chars":
			if c.least, err = whole(m); err != nil {
				return err
			}
		default:
			return fmt.Errorf("line %d: invalid key %q: a charset has charset and min_chars", m.line, m.key)
		}
	}
	if len(c.runes) == 0 {
		return fmt.Errorf("line %d: charset: is missing", line)
	}
	p.add(c)
	return nil
}

// Generate draws a password: each charset has its least number, the rest is of all, each place as likely as the others.
func (p *Passwords) Generate(random io.Reader) (string, error) {
	out := make([]rune, 0, p.Length)
	for _, c := range p.charsets {
		for range c.least {
			r, err := draw(random, len(c.runes))
			if err != nil {
				return "", err
			}
			out = append(out, c.runes[r])
		}
	}
	for len(out) < p.Length {
		r, err := draw(random, len(p.all))
		if err != nil {
			return "", err
		}
		out = append(out, p.all[r])
	}
	for i := len(out) - 1; i > 0; i-- {
		j, err := draw(random, i+1)
		if err != nil {
			return "", err
		}
		out[i], out[j] = out[j], out[i]
	}
	return string(out), nil
}

// draw gives a number below n, which is at most 65,536, each as likely.
func draw(random io.Reader, n int) (int, error) {
	most := 1 << 16 / n * n
	for {
		var b [2]byte
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, err
		}
		if v := int(b[0])<<8 | int(b[1]); v < most {
			return v % n, nil
		}
	}
}
