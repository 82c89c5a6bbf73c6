package keeper

import (
	"context"
	"fmt"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/tools"
)

// Help describes a path, or all paths of the mount that it names, to whoever has a token: as text and as OpenAPI.
func (k *Keeper) Help(ctx context.Context, r *secrets.Request) (map[string]any, error) {
	st, leave, err := k.gate.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	r.Now = k.cfg.Now()
	t := k.newTask(st, r)
	st = t.Tables
	if err := locked(t); err != nil {
		return nil, k.audited(ctx, t, err)
	}
	if t.Nowhere {
		return nil, k.audited(ctx, t, k.noRoute(ctx, t))
	}
	if _, err := k.rights.Known(ctx, t.Tables, t.Token, t.Now, t.Remote); err != nil {
		return nil, k.audited(ctx, t, err)
	}
	path := strings.TrimSuffix(r.Path, "/")
	e, rest := st.Mounts.Route(path)
	if e == nil {
		e, rest = st.Mounts.Route(path + "/")
	}
	if e == nil {
		return nil, errkind.Errorf(errkind.NotFound, "no handler for route %q. route entry not found.", r.Path)
	}
	list, _ := tools.RoutesOf(e, st.Engines[e.Accessor])
	if err := k.audited(ctx, t, nil); err != nil {
		return nil, err
	}
	paths, shown := map[string]any{}, []string{}
	for _, one := range list {
		if rest != "" && !fits(one.Path, rest) {
			continue
		}
		paths["/"+one.Path] = tools.Item(e.Path, one)
		shown = append(shown, fmt.Sprintf("    %s\n        %s\n", one.Path, capabilitiesOf(one)))
	}
	if len(shown) == 0 {
		return nil, errkind.New(errkind.NotFound, "no help for this path: ask for that of its mount, "+e.Path)
	}
	text := fmt.Sprintf("## DESCRIPTION\n\n%s, a mount of type %s. %s\n\n## PATHS\n\nPaths below the mount, and what "+
		"may be done there:\n\n%s", e.Path, e.Type, e.Description, strings.Join(shown, "\n"))
	return map[string]any{"help": text, "see_also": nil, "openapi": map[string]any{"openapi": "3.0.2", "paths": paths,
		"info": map[string]any{"title": "Corbel secrets API", "version": k.cfg.Local.Version}}}, nil
}

func capabilitiesOf(r engine.Route) string {
	var out []string
	for _, op := range r.Ops {
		out = append(out, op.String())
	}
	if r.Open {
		out = append(out, "no token is needed")
	}
	return strings.Join(out, ", ")
}

// fits is whether a path is one of a route's. The last part in braces may stand for several segments.
func fits(route, path string) bool {
	want, got := strings.Split(strings.Trim(route, "/"), "/"), strings.Split(strings.Trim(path, "/"), "/")
	for i, w := range want {
		if i >= len(got) {
			return false
		}
		if strings.HasPrefix(w, "{") {
			if i == len(want)-1 {
				return true
			}
			continue
		}
		if w != got[i] {
			return false
		}
	}
	return len(want) == len(got)
}
