package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"corbel.dev/corbel/client/sensu"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/review"
	"corbel.dev/corbel/monitor/script"
)

// CheckObjects names every mistake in a file of the monitor's objects (YAML documents or JSON) that can be seen without a server: types, values,
// unknown keys, programs that do not compile. What an object names may be anywhere, and is not looked for.
func CheckObjects(ctx context.Context, text []byte) (wrong []error) {
	list, err := sensu.ReadResources(text)
	if err != nil {
		return []error{err}
	}
	engine := script.New(script.Config{}) // who checks a file runs it for himself
	for _, r := range list {
		for _, err := range checkObject(ctx, engine, &r) {
			wrong = append(wrong, fmt.Errorf("%s: %w", r.String(), err))
		}
	}
	return wrong
}

func checkObject(ctx context.Context, engine *script.Engine, r *sensu.Resource) (wrong []error) {
	if _, _, err := r.Request("default"); err != nil {
		return []error{err}
	}
	o := newObject(r.APIVersion, r.Type)
	if o == nil {
		return nil // an event, a provider: what they hold is for the server to judge
	}
	whole := maps.Clone(r.Spec)
	if r.Metadata != nil {
		meta := maps.Clone(r.Metadata)
		if meta["namespace"] == nil {
			if _, scoped := o.(interface{ ObjectMeta() *monitor.Meta }); scoped && scopedKind(r.Type) {
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
		if t.APIVersion == api && t.Kind == kind && t.Name != "provider" && t.Name != "providers" && t.Name != "users" && t.Name != "apikeys" {
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
