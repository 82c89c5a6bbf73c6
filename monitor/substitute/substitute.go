// Package substitute puts what is known of an entity into the texts of checks and hooks: {{ .labels.port | default
// "80" }}.
//
// Texts are templates of text/template over the entity as its JSON has it, with the metadata's
// fields at the top: .name, .namespace, .labels.x, .annotations.x, .system.hostname, .subscriptions. A token
// without a value and without a default is an error that names it. Whoever may write a check is not trusted with
// this process: templates run within steps, bytes and time (kit/safetemplate). Labels that an entity hides from
// readers are not hidden here: commands need them. Nothing is kept; all functions may be called from any goroutine.
package substitute

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"corbel.dev/corbel/kit/safetemplate"
	"corbel.dev/corbel/monitor"
)

// Data is an entity as templates see it.
type Data map[string]any

// NewData makes it of e.
func NewData(e *monitor.Entity) (Data, error) {
	type shown monitor.Entity // without the method that hides labels
	b, err := json.Marshal((*shown)(e))
	if err != nil {
		return nil, err
	}
	d := Data{}
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, err
	}
	meta, _ := d["metadata"].(map[string]any)
	maps.Copy(d, meta)
	for _, name := range []string{"labels", "annotations"} {
		if d[name] == nil {
			d[name] = map[string]any{}
		}
	}
	return d, nil
}

// Check replaces the tokens in all texts of a check. c is changed; after an error it is as it was.
func (d Data) Check(c *monitor.CheckConfig) error {
	out := new(monitor.CheckConfig)
	if changed, err := d.object(c, out); err != nil || !changed {
		return err
	}
	// What JSON does not show stays.
	out.Extra, out.ExtendedAttributes, out.Scheduler, out.Meta.Extra = c.Extra, c.ExtendedAttributes, c.Scheduler,
		c.Meta.Extra
	*c = *out
	return nil
}

// Hook replaces the tokens in all texts of a hook, as Check does.
func (d Data) Hook(h *monitor.HookConfig) error {
	out := new(monitor.HookConfig)
	if changed, err := d.object(h, out); err != nil || !changed {
		return err
	}
	out.Extra, out.Meta.Extra = h.Extra, h.Meta.Extra
	*h = *out
	return nil
}

// object writes in with its tokens replaced to out; changed is false when there are none.
func (d Data) object(in, out any) (changed bool, err error) {
	b, err := json.Marshal(in)
	if err != nil {
		return false, err
	}
	if !strings.Contains(string(b), "{{") {
		return false, nil
	}
	var tree any
	if err := json.Unmarshal(b, &tree); err != nil {
		return false, err
	}
	if tree, err = d.walk("", tree); err != nil {
		return false, err
	}
	if b, err = json.Marshal(tree); err != nil {
		return false, err
	}
	return true, json.Unmarshal(b, out)
}

// walk replaces the tokens in all texts below a value of JSON.
func (d Data) walk(place string, value any) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		return d.Text(place, v)
	case []any:
		for i := range v {
			if v[i], err = d.walk(place, v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if v[k], err = d.walk(k, v[k]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// functions make nothing of their own but an asset's variable, whose name is as long as the template's.
func functions(*safetemplate.Budget) template.FuncMap {
	return template.FuncMap{"default": orDefault, "assetPath": assetPath}
}

// noValue is what text/template writes for a token without a value.
const noValue = "<no value>"

// Text replaces the tokens of one text; place names it in errors.
func (d Data) Text(place, text string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := safetemplate.Parse(place, text, functions, safetemplate.Limits{})
	if err != nil {
		return "", fmt.Errorf("%s: could not parse the template: %w", place, err)
	}
	out, err := t.Execute(map[string]any(d), false)
	if err != nil {
		return "", fmt.Errorf("%s: could not execute the template: %w", place, err)
	}
	if !strings.Contains(out, noValue) {
		return out, nil
	}
	// Once more, for the token's name; from the start it would make defaults impossible.
	if _, err := t.Execute(map[string]any(d), true); err != nil {
		return "", fmt.Errorf("%s: unmatched token: %w", place, err)
	}
	return "", fmt.Errorf("%s: unmatched token: found an undefined value but could not identify the token", place)
}

// orDefault is the function default of templates: its last argument is the token's value, if it has one.
func orDefault(fallback any, value ...any) any {
	if len(value) == 0 || value[0] == nil {
		return fallback
	}
	return value[0]
}

// assetPath is the function assetPath of templates: the variable that holds where an asset was unpacked, for the shell.
func assetPath(name string) string { return "${" + AssetVariable(name) + "}" }

// AssetVariable names the environment variable that holds where an asset was unpacked: SENSU_CHECKS_PATH of
// sensu/checks.
func AssetVariable(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r + 'A' - 'a'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, name) + "_PATH"
}
