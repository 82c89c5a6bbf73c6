package tools

import (
	"encoding/json"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/system"
)

// methods of HTTP by what they do. A list is a read with a parameter.
var methods = map[secrets.Operation]string{secrets.Read: "get", secrets.List: "get", secrets.Create: "post",
	secrets.Update: "post", secrets.Patch: "patch", secrets.Delete: "delete"}

// openAPI describes what the caller may see of the mounts' paths, as OpenAPI 3 has it.
func (o *Tools) openAPI(c *system.Call) (any, error) {
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	paths := map[string]any{}
	for _, e := range c.Tables.Mounts.All() {
		list, ok := RoutesOf(e, c.Tables.Engines[e.Accessor])
		if !ok || !c.Bearer.ACL.Below(c.Bearer.At(c.Tables, e.Path)) {
			continue
		}
		for _, r := range list {
			paths["/"+e.Path+r.Path] = Item(e.Path, r)
		}
	}
	if len(paths) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	text, err := json.Marshal(map[string]any{"openapi": "3.0.2", "paths": paths,
		"info": map[string]any{"title": "Corbel secrets API", "version": o.Local.Version,
			"description": "The paths of the mounts that the caller may see. All are below /v1/."}})
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "application/json", Body: text}}, err
}

// Item describes a path.
func Item(mount string, r engine.Route) map[string]any {
	out := map[string]any{}
	var parameters []any
	for rest := r.Path; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			break
		}
		var name string
		name, rest, _ = strings.Cut(after, "}")
		parameters = append(parameters, map[string]any{"name": name, "in": "path", "required": true,
			"schema": map[string]string{"type": "string"}})
	}
	if parameters != nil {
		out["parameters"] = parameters
	}
	if r.Open {
		out["x-vault-unauthenticated"] = true
	}
	for _, op := range r.Ops {
		about := map[string]any{"operationId": op.String() + "-" +
			strings.Trim(strings.NewReplacer("/", "-", "{", "", "}", "").Replace(mount+r.Path), "-"),
			"tags":      []string{strings.TrimSuffix(mount, "/")},
			"responses": map[string]any{"200": map[string]string{"description": "OK"}}}
		if op == secrets.List {
			about["parameters"] = []any{map[string]any{"name": "list", "in": "query",
				"schema": map[string]string{"type": "string"}}}
		}
		out[methods[op]] = about
	}
	return out
}
