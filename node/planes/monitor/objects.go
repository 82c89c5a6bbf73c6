package monitorplane

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/review"
	"corbel.dev/corbel/monitor/script"
)

// CheckObject names every mistake in one of the monitor's objects, as files have it, that can be seen without a
// server: values, unknown keys, programs that do not compile. What it names may be anywhere, and is not looked for.
func CheckObject(ctx context.Context, api, kind string, metadata, spec map[string]any) (wrong []error) {
	engine := script.New(script.Config{}) // who checks a file runs it for himself
	o := newObject(api, kind)
	if o == nil {
		return nil // an event, a provider: what they hold is for the server to judge
	}
	whole := maps.Clone(spec)
	if metadata != nil {
		meta := maps.Clone(metadata)
		if meta["namespace"] == nil {
			if _, scoped := o.(interface{ ObjectMeta() *monitor.Meta }); scoped && scopedKind(kind) {
				meta["namespace"] = "default"
			}
		}
		whole["metadata"] = meta
	}
	b, err := json.Marshal(whole)
	if err == nil {
		err = json.Unmarshal(b, o)
	}
	if err == nil {
		err = o.Validate()
	}
	if err != nil {
		return []error{err}
	}
	for _, k := range review.Unknown(b, o) {
		wrong = append(wrong, errkind.New(errkind.Invalid, k.String()))
	}
	for _, p := range review.Programs(o) {
		if err := compiles(ctx, engine, p.Source, p.Body); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", p.Field, err))
		}
	}
	return wrong
}

// kindNames are the names that files have for types which this plane calls otherwise.
var kindNames = map[string]string{"Check": "CheckConfig", "Hook": "HookConfig"}

// newObject makes an object of the type that a file names; nil for those that are not decoded as they stand.
func newObject(api, kind string) monitor.Object {
	if other := kindNames[kind]; other != "" {
		kind = other
	}
	for _, t := range monitor.Types {
		if t.APIVersion == api && t.Kind == kind && t.Name != "provider" && t.Name != "providers" && t.Name != "users" &&
			t.Name != "apikeys" {
			return t.New()
		}
	}
	return nil
}

func scopedKind(kind string) bool {
	if other := kindNames[kind]; other != "" {
		kind = other
	}
	for _, t := range monitor.Types {
		if t.Kind == kind {
			return t.Scoped
		}
	}
	return false
}
