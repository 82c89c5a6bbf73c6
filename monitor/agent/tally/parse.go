package tally

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Kinds of metrics.
const (
	counter = 'c'
	gauge   = 'g'
	timer   = 'm' // ms, h and d
	set     = 's'
)

// sample is one line that was understood.
type sample struct {
	name   string
	kind   byte
	values []string
	rate   float64 // of sampling, in (0, 1]
	tags   []string
}

// Bounds of a line.
const (
	maxName  = 512
	maxTags  = 64
	maxValue = 256
)

var (
	errForm  = errors.New("a line is name:value|type[|@rate][|#tag,...]")
	errOther = errors.New("events and service checks are not taken")
)

// parse reads one line: name:value[:value...]|type[|@rate][|#tag[:value],...].
func parse(line string) (s sample, err error) {
	if strings.HasPrefix(line, "_e{") || strings.HasPrefix(line, "_sc|") {
		return s, errOther
	}
	fields := strings.Split(line, "|")
	if len(fields) < 2 {
		return s, errForm
	}
	name, values, ok := strings.Cut(fields[0], ":")
	if s.name = clean(name); !ok || s.name == "" || len(s.name) > maxName {
		return s, errForm
	}
	switch fields[1] {
	case "c":
		s.kind = counter
	case "g":
		s.kind = gauge
	case "ms", "h", "d":
		s.kind = timer
	case "s":
		s.kind = set
	default:
		return s, fmt.Errorf("%q is no type of metric: c, g, ms, h, d or s", fields[1])
	}
	s.rate, s.values = 1, []string{values}
	if s.kind != set {
		s.values = strings.Split(values, ":")
	}
	for _, f := range fields[2:] {
		if err := s.option(f); err != nil {
			return s, err
		}
	}
	for _, v := range s.values {
		if len(v) > maxValue {
			return s, errForm
		}
		if f, err := strconv.ParseFloat(v, 64); s.kind != set && (err != nil || math.IsNaN(f) || math.IsInf(f, 0)) {
			return s, fmt.Errorf("%q is no number", v)
		}
	}
	return s, nil
}

// option reads what follows the type; what newer clients add is passed over.
func (s *sample) option(f string) error {
	switch {
	case strings.HasPrefix(f, "@"):
		rate, err := strconv.ParseFloat(f[1:], 64)
		if err != nil || !(rate > 0 && rate <= 1) {
			return fmt.Errorf("%q is no rate in (0, 1]", f[1:])
		}
		s.rate = rate
	case strings.HasPrefix(f, "#"):
		for t := range strings.SplitSeq(f[1:], ",") {
			if t != "" {
				s.tags = append(s.tags, t)
			}
		}
		if len(s.tags) > maxTags {
			return fmt.Errorf("%d tags, at most %d", len(s.tags), maxTags)
		}
		slices.Sort(s.tags)
		s.tags = slices.Compact(s.tags)
	}
	return nil
}

// clean makes a name as statsd servers do: spaces and slashes become _ and -, other strange letters go.
func clean(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ' || c == '\t':
			return '_'
		case c == '/':
			return '-'
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
			return c
		}
		return -1
	}, name)
}
