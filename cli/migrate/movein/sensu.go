package movein

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"corbel.dev/corbel/cli/migrate"
	"corbel.dev/corbel/client/sensu"
)

// sensuTypes are what is brought of a Sensu Go, in order: what others refer to comes first.
var sensuTypes = []struct {
	name, path, at string // at: the field with the name; "" is metadata.name
	global         bool
}{
	{"namespaces", "core/v2/namespaces", "name", true}, {"users", "core/v2/users", "username", true},
	{"clusterroles", "core/v2/clusterroles", "", true},
	{"clusterrolebindings", "core/v2/clusterrolebindings", "", true}, {"roles", "core/v2/roles", "", false},
	{"rolebindings", "core/v2/rolebindings", "", false}, {"assets", "core/v2/assets", "", false},
	{"hooks", "core/v2/hooks", "", false}, {"filters", "core/v2/filters", "", false},
	{"mutators", "core/v2/mutators", "", false}, {"handlers", "core/v2/handlers", "", false},
	{"pipelines", "core/v2/pipelines", "", false}, {"checks", "core/v2/checks", "", false},
	{"entities", "core/v2/entities", "", false}, {"silenced", "core/v2/silenced", "", false},
}

// SensuKinds are their names.
func SensuKinds() (out []string) {
	for _, t := range sensuTypes {
		out = append(out, t.name)
	}
	return out
}

// Sensu brings over what a Sensu Go backend gives: all configuration, silences, and entities without an agent. Agents
// and events come by themselves once agents connect.
func Sensu(ctx context.Context, from, to *sensu.Client, fromName, toName string, o Options) (*migrate.Report, error) {
	r := newRun(o, fromName, toName)
	for i := range sensuTypes {
		t := &sensuTypes[i]
		for raw, err := range from.List(ctx, sensu.ObjectPath(t.path, !t.global, "", ""), nil) {
			var e *sensu.Error
			switch {
			case errors.As(err, &e) && e.Status == http.StatusNotFound:
				r.note(t.name, "(all)", migrate.Skipped, "the source has no such objects")
			case err != nil && i == 0:
				return nil, err
			case err != nil:
				r.note(t.name, "(all)", migrate.Failed, err.Error())
			default:
				r.sensu(ctx, i, raw, to)
			}
		}
		if ctx.Err() != nil {
			return r.report, ctx.Err()
		}
		if r.Progress != nil {
			r.Progress(t.name)
		}
	}
	return r.report, nil
}

func (r *run) sensu(ctx context.Context, i int, raw []byte, to *sensu.Client) {
	t := &sensuTypes[i]
	var want object
	if err := json.Unmarshal(raw, &want); err != nil {
		r.note(t.name, "?", migrate.Failed, err.Error())
		return
	}
	meta, _ := want["metadata"].(object)
	name := text(meta, "name")
	if t.at != "" {
		name = text(want, t.at)
	}
	path := sensu.ObjectPath(t.path, !t.global, text(meta, "namespace"), name)
	switch {
	case t.name == "users":
		have, err := getSensu(ctx, to, path)
		if err == nil && have != nil {
			r.note(t.name, name, migrate.Unchanged, "")
			return
		}
		r.note(t.name, name, migrate.Skipped, "passwords cannot be read: sensuctl user create "+name)
		return
	case t.name == "entities" && text(want, "entity_class") == "agent":
		r.note(t.name, name, migrate.Skipped, "its agent brings it")
		return
	}
	delete(meta, "created_by")
	for _, field := range []string{"last_seen", "expire_at", "begin", "expire"} {
		if t.name == "entities" || field != "last_seen" && want[field] == -1.0 {
			delete(want, field)
		}
	}
	compare := object{}
	for field, v := range want {
		if field != "metadata" && field != "subscriptions" && field != "expire" {
			compare[field] = v
		}
	}
	r.bring(ctx, thing{kind: t.name, name: text(meta, "namespace") + "/" + name, want: compare,
		read: func(ctx context.Context) (object, error) { return getSensu(ctx, to, path) },
		write: func(ctx context.Context) error {
			body, err := json.Marshal(want)
			if err == nil {
				_, _, err = to.Do(ctx, "PUT", path, nil, body)
			}
			return err
		}})
}

func getSensu(ctx context.Context, cl *sensu.Client, path string) (object, error) {
	var out object
	err := cl.Get(ctx, path, &out)
	if sensu.NotFound(err) {
		return nil, nil
	}
	return out, err
}
