package sensuctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"corbel.dev/corbel/cli/command"
)

// wrapped is an object as files have it.
type wrapped struct {
	Type       string         `json:"type" yaml:"type"`
	APIVersion string         `json:"api_version" yaml:"api_version"`
	Metadata   map[string]any `json:"metadata" yaml:"metadata"`
	Spec       map[string]any `json:"spec" yaml:"spec"`
}

// object reads JSON with its numbers as they are.
func object(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("the monitor's answer: %w", err)
	}
	return m, nil
}

// wrap splits an answer into what files have.
func (t *kind) wrap(raw []byte) (*wrapped, error) {
	m, err := object(raw)
	if err != nil {
		return nil, err
	}
	w := &wrapped{Type: t.Type, APIVersion: t.API, Metadata: map[string]any{}, Spec: m}
	if meta, ok := m["metadata"].(map[string]any); ok && t.Type != "Event" {
		w.Metadata = meta
		delete(m, "metadata")
	}
	if spec, ok := m["spec"].(map[string]any); ok && t.API != "core/v2" { // it comes wrapped
		w.Spec = spec
		if own, ok := m["type"].(string); ok { // providers are of several
			w.Type = own
		}
	}
	return w, nil
}

// numbers are for YAML, which would quote JSON's.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = numbers(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = numbers(x)
		}
		return out
	}
	return v
}

// writeWrapped writes objects as `create` takes them.
func writeWrapped(w io.Writer, format string, list []*wrapped) error {
	if format != "yaml" {
		for _, o := range list {
			if err := command.WriteJSON(w, o, false); err != nil {
				return err
			}
		}
		return nil
	}
	for i, o := range list {
		if i > 0 {
			if _, err := io.WriteString(w, "---\n"); err != nil {
				return err
			}
		}
		plain := *o
		plain.Metadata, _ = numbers(o.Metadata).(map[string]any)
		plain.Spec, _ = numbers(o.Spec).(map[string]any)
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		if err := e.Encode(plain); err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	return nil
}

// write prints objects in the format that was asked for; one is whether a single one was.
func (s *Ctl) write(p *profile, t *kind, list []json.RawMessage, one bool) error {
	format := cmp.Or(s.format, p.Format, "tabular")
	if err := checkFormat(format); err != nil {
		return err
	}
	switch format {
	case "json":
		if one {
			return command.WriteJSON(s.env.Out, list[0], false)
		}
		if list == nil {
			list = []json.RawMessage{}
		}
		return command.WriteJSON(s.env.Out, list, false)
	case "tabular":
		return s.table(t, list, one)
	}
	var out []*wrapped
	for _, raw := range list {
		w, err := t.wrap(raw)
		if err != nil {
			return err
		}
		out = append(out, w)
	}
	return writeWrapped(s.env.Out, format, out)
}

func (s *Ctl) table(t *kind, list []json.RawMessage, one bool) error {
	var heads, paths []string
	for column := range strings.SplitSeq(t.Columns, ",") {
		head, path, _ := strings.Cut(column, "=")
		heads, paths = append(heads, head), append(paths, path)
	}
	table := command.Table{Head: heads}
	for _, raw := range list {
		m, err := object(raw)
		if err != nil {
			return err
		}
		var row []string
		for i, path := range paths {
			row = append(row, cell(heads[i], at(m, path)))
		}
		if one {
			f := &command.Fields{Width: 16}
			for i := range heads {
				f.Add(heads[i], row[i])
			}
			s.env.Say("=== %s\n", row[0])
			return f.Write(s.env.Out)
		}
		table.Add(row...)
	}
	return table.Write(s.env.Out)
}

// at follows a path into an object.
func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

var times = []string{"Last Seen", "Timestamp", "Begin", "Created At"}

// cell is a value as a table has it.
func cell(head string, v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			if _, deep := x.(map[string]any); deep {
				return fmt.Sprint(len(v))
			}
			parts[i] = cell("", x)
		}
		return strings.Join(parts, ",")
	case json.Number:
		if n, err := v.Int64(); err == nil && slices.Contains(times, head) {
			if n == 0 {
				return "N/A"
			}
			return time.Unix(n, 0).Format("2006-01-02 15:04:05 -0700 MST")
		}
	}
	return strings.TrimSpace(fmt.Sprint(v))
}
