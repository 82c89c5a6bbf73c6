// Package dogstatsd decodes usage that comes as metrics: DogStatsD 1.3 (tags, several values, rates, timestamps,
// containers) and plain statsd, one or more lines a packet.
//
// A metric's name is a product, its tags are fields: `tenant` is the tenant, the others may be tags and identities. A
// set (|s) adds one identity, whose value is in each field of Member that the product's identity asks for; a count
// (|c) is a quantity, divided by its rate; a gauge, a histogram, a timing or a distribution is a quantity of a max or
// a last. Events and service checks are not taken. There is no id: UDP does not retry, so nothing comes twice.
//
// Each value of a line is an event. Texts share memory with the packet, which must not be changed while they are in
// use. Pure functions, for any goroutine.
package dogstatsd

import (
	"math"
	"strconv"
	"strings"

	"corbel.dev/corbel/usage"
)

// Bounds of a line.
const (
	MaxValues    = 1024
	maxTimestamp = math.MaxInt64 / 1_000_000_000
)

// Member is the name of the field that has the value of a set; any other name of an identity is looked for among the
// tags.
const Member = "member"

// Reject says why a line is no event.
type Reject struct {
	Line string
	Err  error
}

// Decode reads a packet and appends its events. Lines that are wrong are returned with the reason; they spoil no
// other.
func Decode(events []usage.Event, packet string) ([]usage.Event, []Reject) {
	var rejects []Reject
	for line := range strings.SplitSeq(packet, "\n") {
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			continue
		}
		next, err := decodeLine(events, line)
		if err != nil {
			rejects = append(rejects, Reject{line, err})
			continue
		}
		events = next
	}
	return events, rejects
}

// line is what a line says beside its values.
type line struct {
	kind  string
	rate  float64
	event usage.Event
}

func decodeLine(events []usage.Event, text string) ([]usage.Event, error) {
	if strings.HasPrefix(text, "_e{") || strings.HasPrefix(text, "_sc|") {
		return events, usage.Wrong("type", "events and service checks are not taken")
	}
	head, rest, typed := strings.Cut(text, "|")
	name, values, valued := strings.Cut(head, ":")
	if !typed || !valued || name == "" {
		return events, usage.Wrong("line", "must be name:value|type[|@rate][|#tag:value,...][|c:container][|Ttime]")
	}
	l := line{rate: 1, event: usage.Event{Product: name, Source: "dogstatsd"}}
	l.kind, rest, _ = strings.Cut(rest, "|")
	for rest != "" {
		var option string
		option, rest, _ = strings.Cut(rest, "|")
		if err := l.option(option); err != nil {
			return events, err
		}
	}
	return l.appendValues(events, values)
}

func (l *line) option(option string) error {
	switch {
	case option == "":
	case option[0] == '@':
		rate, err := strconv.ParseFloat(option[1:], 64)
		if err != nil || !(rate > 0) || rate > 1 {
			return usage.Wrong("rate", "%.20q is not in (0, 1]", option[1:])
		}
		l.rate = rate
	case option[0] == '#':
		return l.tags(option[1:])
	case strings.HasPrefix(option, "c:"):
		l.event.Tags = append(l.event.Tags, usage.Field{Name: "container", Value: option[2:]})
	case option[0] == 'T':
		seconds, err := strconv.ParseInt(option[1:], 10, 64)
		if err != nil || seconds <= 0 || seconds > maxTimestamp {
			return usage.Wrong("timestamp", "%.20q is no Unix time in seconds", option[1:])
		}
		l.event.Time = seconds * 1_000_000_000
	}
	return nil // later versions of the protocol add fields: they are for others
}

func (l *line) tags(list string) error {
	for tag := range strings.SplitSeq(list, ",") {
		if tag == "" {
			continue
		}
		name, value, _ := strings.Cut(tag, ":")
		if name == "tenant" {
			l.event.Tenant = value
			continue
		}
		if len(l.event.Tags) >= usage.MaxTags {
			return usage.Wrong("tags", "are more than %d", usage.MaxTags)
		}
		l.event.Tags = append(l.event.Tags, usage.Field{Name: name, Value: value})
	}
	return nil
}

func (l *line) appendValues(events []usage.Event, values string) ([]usage.Event, error) {
	if l.kind == "s" {
		e := l.event // a set's member may have colons: it is one value
		e.Identity = append([]usage.Field{{Name: Member, Value: values}}, e.Tags...)
		return append(events, e), nil
	}
	if l.kind != "c" && l.kind != "g" && l.kind != "h" && l.kind != "d" && l.kind != "ms" {
		return events, usage.Wrong("type", "%.20q is none of c, g, h, d, ms, s", l.kind)
	}
	from := len(events)
	for text := range strings.SplitSeq(values, ":") {
		e := l.event
		q, err := quantity(text)
		if err == nil && l.kind == "g" && (text[0] == '+' || text[0] == '-') {
			err = usage.Wrong("value", "%.20q changes a gauge: send what it is", text)
		}
		if err == nil && len(events)-from == MaxValues {
			err = usage.Wrong("value", "are more than %d", MaxValues)
		}
		if err != nil {
			return events[:from], err
		}
		if l.kind == "c" {
			q = q.Scale(l.rate)
		}
		e.Value, e.HasValue = q, true
		events = append(events, e)
	}
	return events, nil
}

// quantity reads an integer; a fraction is rounded to the nearest one, since senders of metrics have floats.
func quantity(text string) (usage.Quantity, error) {
	if q, ok := usage.ParseQuantity(text); ok {
		return q, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) >= 1<<62 {
		return usage.Quantity{}, usage.Wrong("value", "%.40q is no number", text)
	}
	return usage.Int(int64(math.Round(f))), nil
}
