package business

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/script"
)

// Aggregate is the name of the template that is there without having been stored.
const Aggregate = "aggregate"

// template is a RuleTemplate, read.
type template struct {
	Description string    `json:"description"`
	Arguments   arguments `json:"arguments"`
	Eval        string    `json:"eval"`

	builtin bool // its program looks at counts alone
	program *script.Program
}

// arguments are what a template takes, as a JSON schema of one object.
type arguments struct {
	Required   []string             `json:"required"`
	Properties map[string]*property `json:"properties"`
}

type property struct {
	Type        string            `json:"type"`
	Description string            `json:"description"`
	Default     json.RawMessage   `json:"default"`
	Enum        []json.RawMessage `json:"enum"`
	Items       json.RawMessage   `json:"items"`
}

//go:embed aggregate.js
var aggregateEval string

//go:embed rules.js
var environment string

// aggregate is the built-in template.
var aggregate = func() *template {
	number := func(text string) *property { return &property{Type: "number", Description: text} }
	t := &template{builtin: true, Eval: aggregateEval,
		Description: "One event for many: how large a part of the selected events passes, and how many fail.",
		Arguments: arguments{Properties: map[string]*property{
			"critical_threshold":     number("critical where at most this percentage of the events passes"),
			"warning_threshold":      number("warning where at most this percentage of the events passes"),
			"critical_count":         number("critical where at least so many events are critical"),
			"warning_count":          number("warning where at least so many events are warnings"),
			"produce_metrics":        {Type: "boolean", Description: "add counts and percentages as metrics"},
			"set_metric_annotations": {Type: "boolean", Description: "add them as annotations too"},
			"metric_handlers": {Type: "array", Description: "handlers of the metrics",
				Items: json.RawMessage(`{"type":"string"}`)},
		}}}
	var err error
	if t.program, err = t.compiled(); err != nil {
		panic(err) // its text is this package's own
	}
	return t
}()

// builtinTemplate is the object that the API shows of it.
func builtinTemplate() *monitor.Provider {
	spec, err := json.Marshal(aggregate)
	if err != nil {
		panic(err) // it is this package's own
	}
	return &monitor.Provider{Meta: monitor.Meta{Name: Aggregate}, Kind: "RuleTemplate", Spec: spec}
}

// MarshalJSON leaves out what a property does not say.
func (p *property) MarshalJSON() ([]byte, error) {
	out := map[string]any{"type": p.Type, "description": p.Description}
	if p.Default != nil {
		out["default"] = p.Default
	}
	if p.Enum != nil {
		out["enum"] = p.Enum
	}
	if p.Items != nil {
		out["items"] = p.Items
	}
	return json.Marshal(out)
}

// readTemplate reads a template and says what is wrong with it; whether its program can be read is said elsewhere.
func readTemplate(p *monitor.Provider) (*template, error) {
	t := new(template)
	if err := strictly(p.Spec, t); err != nil {
		return nil, err
	}
	if t.Eval == "" {
		return nil, errors.New("spec: eval must be set")
	}
	for name, one := range t.Arguments.Properties {
		if one == nil {
			return nil, fmt.Errorf("spec: arguments.properties.%s must be an object", name)
		}
		if one.Type != "" && kindOf[one.Type] == nil {
			return nil, fmt.Errorf("spec: arguments.properties.%s.type %q is not one of %q", name, one.Type,
				slices.Sorted(maps.Keys(kindOf)))
		}
	}
	for _, name := range t.Arguments.Required {
		if t.Arguments.Properties[name] == nil {
			return nil, fmt.Errorf("spec: arguments.required: %q is not one of arguments.properties", name)
		}
	}
	var err error
	t.program, err = t.compiled()
	return t, err
}

// compiled puts the program where it finds what rules.js says: as a function, whose event becomes JSON.
func (t *template) compiled() (*script.Program, error) {
	return script.NewBody(environment + "\nreturn finish((function() {" + t.Eval + "\n}).call(undefined));")
}

// check reads the program by itself, where programs run: what is around it must not make a program of what is none.
func (t *template) check(ctx context.Context, engine *script.Engine) error {
	p, err := script.NewBody(t.Eval)
	if err == nil {
		err = engine.Check(ctx, p)
	}
	return err
}

// kindOf tells whether a JSON value is of a type.
var kindOf = map[string]func(any) bool{
	"string":  func(v any) bool { _, ok := v.(string); return ok },
	"number":  func(v any) bool { _, ok := v.(float64); return ok },
	"integer": func(v any) bool { n, ok := v.(float64); return ok && n == float64(int64(n)) },
	"boolean": func(v any) bool { _, ok := v.(bool); return ok },
	"array":   func(v any) bool { _, ok := v.([]any); return ok },
	"object":  func(v any) bool { _, ok := v.(map[string]any); return ok },
}

// args are a rule's arguments with the template's defaults, or what is wrong with them.
func (t *template) args(given map[string]json.RawMessage) ([]byte, error) {
	all := maps.Clone(given)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	for name, one := range t.Arguments.Properties {
		// an empty object is what files have where there is no default
		if _, ok := all[name]; !ok && one.Default != nil && !bytes.Equal(bytes.TrimSpace(one.Default), []byte("{}")) {
			all[name] = one.Default
		}
	}
	for _, name := range t.Arguments.Required {
		if _, ok := all[name]; !ok {
			return nil, fmt.Errorf("arguments: %s must be set", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one := t.Arguments.Properties[name]
		if one == nil {
			return nil, fmt.Errorf("arguments: the template has no %q", name)
		}
		var v any
		if err := json.Unmarshal(all[name], &v); err != nil {
			return nil, fmt.Errorf("arguments: %s: %w", name, err)
		}
		if kind := kindOf[one.Type]; kind != nil && !kind(v) {
			return nil, fmt.Errorf("arguments: %s must be of type %s", name, one.Type)
		}
		if len(one.Enum) > 0 && !slices.ContainsFunc(one.Enum, func(e json.RawMessage) bool { return same(e, all[name]) }) {
			return nil, fmt.Errorf("arguments: %s is not one of the template's values", name)
		}
	}
	return json.Marshal(all)
}

// same tells whether two JSON texts are of one value.
func same(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	one, err := json.Marshal(x)
	other, err2 := json.Marshal(y)
	return err == nil && err2 == nil && bytes.Equal(one, other)
}
