package points

import (
	"fmt"
	"strings"

	"corbel.dev/corbel/monitor"
)

// secondsDigits is how many digits a time in seconds has; finer times are cut to them.
const secondsDigits = 10

// influx reads "measurement[,tag=value...] field=value[,...] [time]"; a backslash takes the meaning from a separator.
func (r *reading) influx(line string) error {
	f := splitPlain(line, ' ')
	if len(f) != 2 && len(f) != 3 {
		return fmt.Errorf("influxdb line format requires 2 arguments with a 3rd (optional) timestamp, and there are %d",
			len(f))
	}
	series := splitPlain(f[0], ',')
	measurement := unescape(series[0])
	tags, err := escapedPairs(series[1:])
	if err != nil {
		return err
	}
	at := r.Executed
	if len(f) == 3 {
		text := f[2][:min(len(f[2]), secondsDigits)]
		if at, err = seconds(text); err != nil {
			return err
		}
	}
	fields, err := escapedPairs(splitPlain(f[1], ','))
	if err != nil {
		return err
	}
	values := make([]float64, len(fields))
	for i, field := range fields { // all or none of a line
		if values[i], err = number(field.Value); err != nil {
			return err
		}
	}
	for i, field := range fields {
		r.add(measurement+"."+field.Name, values[i], at, tags)
	}
	return nil
}

func escapedPairs(list []string) (out []*monitor.MetricTag, err error) {
	for _, text := range list {
		p := splitPlain(text, '=')
		if len(p) != 2 || p[0] == "" {
			return nil, fmt.Errorf("%q is no key=value pair", text)
		}
		out = append(out, &monitor.MetricTag{Name: unescape(p[0]), Value: unescape(p[1])})
	}
	return out, nil
}

// splitPlain splits at separators that no backslash precedes.
func splitPlain(s string, sep byte) (out []string) {
	begin := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case sep:
			out = append(out, s[begin:i])
			begin = i + 1
		}
	}
	return append(out, s[begin:])
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
