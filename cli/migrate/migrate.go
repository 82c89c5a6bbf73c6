// Package migrate brings the state of a running Consul into Corbel, over the HTTP
// contract that both speak.
//
// What is there already and is the same stays as it is, so that a run that broke off
// is begun again from the start and does only what is missing. What is there and
// differs stays too, and is reported, unless Config.Overwrite is set. Nothing is
// ever deleted in the target and nothing is ever written to the source. Keys are
// created by check-and-set: a value that somebody writes meanwhile is not lost.
package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/client"
)

// Kinds of what is brought over, in their order: what others refer to comes first.
var Kinds = []string{"policies", "roles", "auth-methods", "binding-rules", "tokens", "config", "intentions", "keys",
	"catalog", "queries"}

// Config says what to bring from where to where.
type Config struct {
	From, To  *client.Client
	Kinds     []string // none is all
	DryRun    bool     // only say what would be done
	Overwrite bool     // write what differs
	// Progress is told when a kind is done; nil is nobody.
	Progress func(kind string, counts map[Result]int)
}

// Result is what became of an object.
type Result string

// Results. In a dry run the first two mean what would be done.
const (
	Created   Result = "created"
	Updated   Result = "updated"
	Unchanged Result = "unchanged"
	Skipped   Result = "skipped" // on purpose: Why says it
	Differs   Result = "differs" // is there and is another: left as it is
	Failed    Result = "failed"
)

// Results lists them in the order of reports.
var Results = []Result{Created, Updated, Unchanged, Skipped, Differs, Failed}

// Item is one object and what became of it.
type Item struct {
	Kind, Name string
	Result     Result
	Why        string `json:",omitempty"`
}

// Report is what a run did.
type Report struct {
	From, To string
	DryRun   bool
	Counts   map[string]map[Result]int // by kind
	Items    []Item                    // all but those unchanged and, of keys, created
	Notes    []string                  `json:",omitempty"` // what the source holds and does not give
}

// Complete tells whether the target now has everything that it can have.
func (r *Report) Complete() bool {
	for _, counts := range r.Counts {
		if counts[Failed]+counts[Differs] > 0 {
			return false
		}
	}
	return true
}

// run is one run. Its report is guarded by mu: keys are written side by side.
type run struct {
	cfg Config

	mu     sync.Mutex
	report *Report
}

// Run brings everything over. Objects that fail do not end it, and are in the report; its error is a
// source or target that cannot be asked at all.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	r := &run{cfg: cfg, report: &Report{From: cfg.From.Address(), To: cfg.To.Address(), DryRun: cfg.DryRun,
		Counts: map[string]map[Result]int{}, Items: []Item{}}}
	for _, end := range []struct {
		what string
		cl   *client.Client
	}{{"source", cfg.From}, {"target", cfg.To}} {
		if leader, err := end.cl.Leader(ctx); err != nil {
			return nil, fmt.Errorf("the %s: %w", end.what, err)
		} else if leader == "" {
			return nil, fmt.Errorf("the %s %s has no leader: wait until its servers have elected one", end.what,
				end.cl.Address())
		}
	}
	parts := map[string]func(context.Context) error{"policies": r.policies, "roles": r.roles,
		"auth-methods": r.authMethods, "binding-rules": r.bindingRules,
		"tokens": r.tokens, "config": r.configEntries, "intentions": r.intentions, "keys": r.keys, "catalog": r.catalog,
		"queries": r.queries}
	for _, kind := range cfg.Kinds {
		if parts[kind] == nil {
			return nil, fmt.Errorf("unknown kind %q: it must be one of %s", kind, strings.Join(Kinds, ", "))
		}
	}
	for _, kind := range Kinds {
		if len(cfg.Kinds) > 0 && !slices.Contains(cfg.Kinds, kind) {
			continue
		}
		if err := parts[kind](ctx); err != nil {
			r.note(Item{Kind: kind, Name: "(all)", Result: whole(err), Why: reason(err)})
		}
		if ctx.Err() != nil {
			return r.report, ctx.Err()
		}
		if cfg.Progress != nil {
			cfg.Progress(kind, r.report.Counts[kind])
		}
	}
	return r.report, nil
}

// whole is the result of a kind that could not be listed: skipped where the source has no such thing.
func whole(err error) Result {
	var e *client.Error
	if errors.As(err, &e) && (e.Code == http.StatusUnauthorized && strings.Contains(e.Body, "ACL support disabled") ||
		e.Code == http.StatusNotFound) {
		return Skipped
	}
	return Failed
}

func reason(err error) string {
	var e *client.Error
	if errors.As(err, &e) && e.Code == http.StatusUnauthorized && strings.Contains(e.Body, "ACL support disabled") {
		return "the source has ACLs switched off"
	}
	if errors.As(err, &e) && e.Code == http.StatusNotFound {
		return "the source has no such endpoint"
	}
	return err.Error()
}

// note puts an item into the report.
func (r *run) note(it Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.report.Counts[it.Kind]
	if counts == nil {
		counts = map[Result]int{}
		r.report.Counts[it.Kind] = counts
	}
	counts[it.Result]++
	if it.Result != Unchanged && (it.Kind != "keys" || it.Result != Created) {
		r.report.Items = append(r.report.Items, it)
	}
}

func (r *run) skip(kind, name, why string) {
	r.note(Item{Kind: kind, Name: name, Result: Skipped, Why: why})
}
func (r *run) fail(kind, name string, err error) {
	r.note(Item{Kind: kind, Name: name, Result: Failed, Why: err.Error()})
}

// object is anything of the API. Fields that a version does not know come along.
type object = map[string]any

func text(o object, name string) string { s, _ := o[name].(string); return s }

// list reads many objects.
func list(ctx context.Context, cl *client.Client, path string) (out []object, err error) {
	_, err = cl.Get(ctx, path, client.Query{Consistent: true}, &out)
	return out, err
}

// one reads an object, nil when there is none.
func one(ctx context.Context, cl *client.Client, path string) (object, error) {
	var out object
	_, err := cl.Get(ctx, path, client.Query{Consistent: true}, &out)
	if missing(err) {
		return nil, nil
	}
	return out, err
}

// missing knows the ways to say that there is no such object: tokens are refused instead.
func missing(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && (e.Code == http.StatusNotFound ||
		e.Code == http.StatusForbidden && strings.Contains(e.Body, "ACL not found"))
}

// volatile are fields that belong to one cluster alone.
var volatile = []string{"CreateIndex", "ModifyIndex", "Hash", "CreateTime", "Namespace", "Partition", "CreatedAt",
	"UpdatedAt",
	"LegacyID", "LegacyMeta", "LegacyCreateTime", "LegacyUpdateTime", "Precedence", "Legacy", "RaftIndex"}

// clean is v without what belongs to one cluster and without empty values, which versions print or leave out as they
// like.
func clean(v any) any {
	switch v := v.(type) {
	case object:
		out := object{}
		for name, field := range v {
			if c := clean(field); c != nil && !slices.Contains(volatile, name) {
				out[name] = c
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, item := range v {
			if c := clean(item); c != nil {
				out = append(out, c)
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	case float64:
		if v == 0 {
			return nil
		}
	}
	return v
}

// plain is v as the API would give it back.
func plain(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	if json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

// place writes one object unless the target has it. want and have are compared cleaned; have is nil when it is not
// there.
func (r *run) place(kind, name string, want, have any, write func() error) {
	it := Item{Kind: kind, Name: name, Result: Created}
	switch {
	case have == nil:
	case reflect.DeepEqual(clean(plain(want)), clean(plain(have))):
		it.Result = Unchanged
	case !r.cfg.Overwrite:
		it.Result, it.Why = Differs,
			"is another in the target: look at both, and run again with --overwrite if the source's is right"
	default:
		it.Result = Updated
	}
	if (it.Result == Created || it.Result == Updated) && !r.cfg.DryRun {
		if err := write(); err != nil {
			it.Result, it.Why = Failed, err.Error()
		}
	}
	r.note(it)
}

// put writes a body to the target.
func (r *run) put(ctx context.Context, path string, body any) error {
	return r.cfg.To.Put(ctx, path, nil, body, nil)
}
