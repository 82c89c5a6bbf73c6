// Package movein brings the state of a running Vault, OpenBao or Sensu Go into Corbel, over the HTTP contracts that
// both ends speak.
//
// As with Consul (package migrate): what is there and is the same stays, so a run that broke off is begun again and
// does only what is missing; what is there and differs stays too and is reported, unless Overwrite is set. Nothing is
// deleted in the target, nothing is written to the source. What was written is read back and compared. What a source
// does not give (passwords, keys that may not leave it) is reported as skipped, with what to do.
package movein

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"corbel.dev/corbel/cli/migrate"
)

// Options say how.
type Options struct {
	DryRun    bool // only say what would be done
	Overwrite bool // write what differs
	// Progress is told when a kind is done; nil is nobody.
	Progress func(kind string)
}

// object is anything of the APIs.
type object = map[string]any

// run is one run.
type run struct {
	Options
	report *migrate.Report
}

func newRun(o Options, from, to string) *run {
	return &run{o, &migrate.Report{From: from, To: to, DryRun: o.DryRun,
		Counts: map[string]map[migrate.Result]int{}, Items: []migrate.Item{}}}
}

func (r *run) note(kind, name string, result migrate.Result, why string) {
	if r.report.Counts[kind] == nil {
		r.report.Counts[kind] = map[migrate.Result]int{}
	}
	r.report.Counts[kind][result]++
	if why != "" {
		r.report.Items = append(r.report.Items, migrate.Item{Kind: kind, Name: name, Result: result, Why: why})
	}
}

// thing is one object on its way.
type thing struct {
	kind, name string
	want       object
	// read gives what the target has; nil is nothing.
	read  func(ctx context.Context) (object, error)
	write func(ctx context.Context) error
}

// bring brings one object over, and reports what became of it; it is whether the target has it now.
func (r *run) bring(ctx context.Context, t thing) bool {
	have, err := t.read(ctx)
	if err != nil {
		r.note(t.kind, t.name, migrate.Failed, err.Error())
		return false
	}
	result := migrate.Created
	switch {
	case have != nil && covers(have, t.want):
		r.note(t.kind, t.name, migrate.Unchanged, "")
		return true
	case have != nil && !r.Overwrite:
		r.note(t.kind, t.name, migrate.Differs, "is there and is another; --overwrite takes the source's")
		return true
	case have != nil:
		result = migrate.Updated
	}
	if !r.DryRun {
		err := t.write(ctx)
		if err == nil {
			if have, err = t.read(ctx); err == nil && !covers(have, t.want) {
				err = fmt.Errorf("it was written, and reads back otherwise: %s", difference(have, t.want))
			}
		}
		if err != nil {
			r.note(t.kind, t.name, migrate.Failed, err.Error())
			return false
		}
	}
	r.note(t.kind, t.name, result, "")
	return true
}

// covers reports whether have says what want says: fields that want leaves empty, and such that it does not know, do
// not count.
func covers(have, want object) bool { return difference(have, want) == "" }

// difference names a field that is another.
func difference(have, want object) string {
	for name, w := range want {
		if w = plain(w); empty(w) {
			continue
		}
		if !reflect.DeepEqual(plain(have[name]), w) {
			return fmt.Sprintf("field %q", name)
		}
	}
	return ""
}

func empty(v any) bool {
	if v == nil {
		return true
	}
	switch x := reflect.ValueOf(v); x.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		return x.Len() == 0
	case reflect.Bool, reflect.Float64:
		return x.IsZero()
	}
	return false
}

// plain is a value as JSON without types gives it, so that numbers compare.
func plain(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var out any
	_ = json.Unmarshal(raw, &out) // it was just made
	return out
}

func text(o object, name string) string { s, _ := o[name].(string); return s }

func strs(v any) (out []string) {
	list, _ := v.([]any)
	for _, x := range list {
		if s, ok := x.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
