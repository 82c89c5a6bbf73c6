// Package points reads metrics from what a check wrote, in the formats that monitoring plugins write, and judges them
// by thresholds.
//
// A line that cannot be read is left out and told of; the others count. The number of points
// and of complaints is bounded, and values are never NaN. Points hold the tags that the check adds to all of them.
// Times are Unix seconds. All functions are pure.
//
// Source: the contract's table of metric formats (section 3), and the formats' own descriptions.
package points

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"corbel.dev/corbel/monitor"
)

// Bounds of one check's output.
const (
	MaxPoints   = 100_000
	maxProblems = 8
)

// Input is what a check wrote, and when.
type Input struct {
	Format   string
	Output   string
	Executed int64 // of points that have no time of their own
	Tags     []*monitor.MetricTag
}

// reading is one output being read.
type reading struct {
	Input
	points   []*monitor.Point
	problems []error
	more     int
}

// Read returns the points of an output, and what was wrong with it, at most a few errors of many.
func Read(in Input) ([]*monitor.Point, []error) {
	r := &reading{Input: in}
	switch in.Format {
	case "nagios_perfdata":
		r.nagios()
	case "graphite_plaintext":
		r.lines(r.graphite)
	case "influxdb_line":
		r.lines(r.influx)
	case "opentsdb_line":
		r.lines(r.openTSDB)
	case "prometheus_text":
		r.prometheus()
	default:
		r.wrong("output metric format %q is not supported", in.Format)
	}
	if r.more > 0 {
		r.problems = append(r.problems, fmt.Errorf("and %d more", r.more))
	}
	return r.points, r.problems
}

func (r *reading) wrong(format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, fmt.Errorf(format, args...))
	} else {
		r.more++
	}
}

// add appends a point; tags are its own.
func (r *reading) add(name string, value float64, at int64, tags []*monitor.MetricTag) {
	switch {
	case math.IsNaN(value):
	case name == "":
		r.wrong("a point without a name")
	case len(r.points) >= MaxPoints:
		r.wrong("point %q is more than %d", name, MaxPoints)
	default:
		all := append(make([]*monitor.MetricTag, 0, len(tags)+len(r.Tags)), tags...)
		r.points = append(r.points, &monitor.Point{Name: name, Value: value, Timestamp: at, Tags: append(all, r.Tags...)})
	}
}

// lines gives each line that is not empty to read.
func (r *reading) lines(read func(line string) error) {
	number := 0
	for line := range strings.Lines(r.Output) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := read(line); err != nil {
			r.wrong("line %d: %w", number, err)
		}
	}
}

// nagios reads "text | label=value[unit];warn;crit;min;max ...". A label may be quoted, and hold spaces then.
func (r *reading) nagios() {
	parts := strings.Split(r.Output, "|")
	if len(parts) != 2 {
		r.wrong("nagios perfdata is what follows the only |, and there are %d", len(parts)-1)
		return
	}
	for _, word := range quotedWords(parts[1]) {
		word, _, _ = strings.Cut(word, ";")
		label, text, ok := cutLast(word, "=")
		if !ok || label == "" {
			r.wrong("%q is no label=value", word)
			continue
		}
		number := strings.Map(func(c rune) rune {
			if c == '-' || c == '.' || '0' <= c && c <= '9' {
				return c
			}
			return -1
		}, text)
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			r.wrong("the value of %s is no number: %q", label, text)
			continue
		}
		r.add(strings.ReplaceAll(label, " ", "_"), value, r.Executed, nil)
	}
}

// quotedWords splits at white space outside of single quotes.
func quotedWords(text string) []string {
	quoted := false
	return strings.FieldsFunc(text, func(c rune) bool {
		if c == '\'' {
			quoted = !quoted
		}
		return !quoted && (c == ' ' || c == '\t' || c == '\n' || c == '\r')
	})
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// graphite reads "path[;tag=value...] value time".
func (r *reading) graphite(line string) error {
	f := strings.Fields(line)
	if len(f) != 3 {
		return fmt.Errorf("graphite plain text format requires exactly 3 arguments, and there are %d", len(f))
	}
	value, err := number(f[1])
	if err != nil {
		return err
	}
	at, err := seconds(f[2])
	if err != nil {
		return err
	}
	name, rest, _ := strings.Cut(f[0], ";")
	var tags []*monitor.MetricTag
	if rest != "" {
		if tags, err = pairs(strings.Split(rest, ";")); err != nil {
			return err
		}
	}
	r.add(name, value, at, tags)
	return nil
}

// openTSDB reads "name time value tag=value...".
func (r *reading) openTSDB(line string) error {
	f := strings.Fields(line)
	if len(f) > 0 && f[0] == "put" { // the telnet form
		f = f[1:]
	}
	if len(f) < 4 {
		return fmt.Errorf("opentsdb format requires a name, a time, a value and at least one tag")
	}
	at, err := seconds(f[1])
	if err != nil {
		return err
	}
	if len(f[1]) == 13 {
		at /= 1000
	}
	value, err := number(f[2])
	if err != nil {
		return err
	}
	tags, err := pairs(f[3:])
	if err != nil {
		return err
	}
	r.add(f[0], value, at, tags)
	return nil
}

func number(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("metric value is invalid, it must be a number: %q", text)
	}
	return v, nil
}

func seconds(text string) (int64, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("metric timestamp is invalid, it must be an integer: %q", text)
	}
	return v, nil
}

func pairs(list []string) (tags []*monitor.MetricTag, err error) {
	for _, p := range list {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" || strings.Contains(value, "=") {
			return nil, fmt.Errorf("metric tag %q is no name=value", p)
		}
		tags = append(tags, &monitor.MetricTag{Name: name, Value: value})
	}
	return tags, nil
}
