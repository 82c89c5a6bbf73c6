package uiplane

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/node/planes/ui/meshmap"
	"corbel.dev/corbel/node/planes/ui/meshstanding"
	"corbel.dev/corbel/node/planes/ui/ownserver"
	"corbel.dev/corbel/node/planes/ui/planeasker"
)

// part is one answer of a plane's own API that a screen shows.
type part struct{ name, plane, path string }

// bundle is a topic of several answers of planes, shared by those whose rights are the same. What of them fails is told
// under "problems" by its name: the rest of the screen stays.
func (u *UI) bundle(parts []part, own func(out map[string]any)) *topic {
	return bundle(&u.ask, u.rightsOfAll, parts, own)
}

func bundle(a *planeasker.Asker, rights func(context.Context, *uiapi.Person) (string, error), parts []part,
	own func(out map[string]any)) *topic {
	return &topic{every: watched, rights: rights, make: func(ctx context.Context, p *uiapi.Person,
		_ url.Values) (any, error) {
		out, problems := map[string]any{}, map[string]string{}
		for _, one := range parts {
			if !a.Has(one.plane) {
				continue
			}
			var text json.RawMessage
			if err := a.Get(ctx, p, one.plane, one.path, &text); err != nil {
				problems[one.name] = err.Error()
				continue
			}
			var vault struct {
				Data json.RawMessage `json:"data"`
			}
			if one.plane == "secrets" && json.Unmarshal(text, &vault) == nil && vault.Data != nil {
				text = vault.Data // what is around it differs with each request
			}
			out[one.name] = text
		}
		if out["problems"] = problems; own != nil {
			own(out)
		}
		return out, ctx.Err()
	}}
}

// secretsParts are what the screen of the secrets plane shows.
var secretsParts = []part{
	{"seal", "secrets", "/v1/sys/seal-status"},
	{"mounts", "secrets", "/v1/sys/internal/ui/mounts"},
	{"attribution", "secrets", "/v1/sys/leases/attribution"},
	{"revocation", "secrets", "/v1/sys/leases/revocation"},
}

// meshTopic shows who calls whom, all or around service= or prefix=: the calls, a map of them, and the health of what
// stands on it.
func (u *UI) meshTopic(f *fleet) *topic {
	t := u.bundle([]part{
		{"intentions", "catalog", "/v1/connect/intentions"},
		{"topology", "catalog", "/v1/internal/mesh/topology"},
		{"roots", "catalog", "/v1/connect/ca/roots"},
	}, nil)
	parts := t.make
	t.make = func(ctx context.Context, p *uiapi.Person, q url.Values) (any, error) {
		v, err := parts(ctx, p, q)
		if err != nil {
			return nil, err
		}
		out := v.(map[string]any)
		text, ok := out["topology"].(json.RawMessage)
		if !ok {
			return out, nil
		}
		var all struct{ Edges []meshmap.Call }
		if err := json.Unmarshal(text, &all); err != nil {
			return nil, err
		}
		g, err := u.d.Grant(ctx, p.Catalog)
		if err != nil {
			return nil, err
		}
		view := meshmap.Of(all.Edges, meshmap.Scope{Service: q.Get("service"), Prefix: q.Get("prefix")})
		st, healths := f.state(), map[string]tally{}
		for i := range view.Map.Places {
			one := &view.Map.Places[i]
			for _, name := range one.Local { // the service of the name in another datacenter is another one
				if g.Allow(acl.Service, name, acl.Read) {
					sum := healths[one.ID]
					sum.with(f.health.of(st, name, g))
					healths[one.ID] = sum
				}
			}
		}
		out["topology"], out["healths"] = view, healths
		return out, nil
	}
	return t
}

// standingTopic shows how the proxies and certificates of service= are, or of all: their hosts are asked.
func standingTopic(u *UI) *topic {
	return &topic{every: examined, rights: u.rightsOfAll, make: func(ctx context.Context, p *uiapi.Person,
		q url.Values) (any, error) {
		return meshstanding.Of(q.Get("service"), func(path string, into any) error {
			return u.ask.Get(ctx, p, "catalog", path, into)
		}), ctx.Err()
	}}
}

// roomTopic shows what is free and used on the nodes that run jobs, to those who may read nodes there.
func roomTopic(u *UI) *topic {
	return u.bundle([]part{{"nodes", "jobs", "/v1/nodes?per_page=1"}}, func(out map[string]any) {
		if _, may := out["nodes"]; may {
			out["room"] = u.jobs.Rooms()
		}
		delete(out, "nodes")
	})
}

// countedTopic shows what product= comes to in an hour and a day, with its error and how much of it is known, hour by
// hour, and what its tag by= makes of it.
func countedTopic(u *UI) *topic {
	return &topic{every: examined, rights: u.rightsOfAll, make: func(ctx context.Context, p *uiapi.Person,
		q url.Values) (any, error) {
		about := url.Values{"product": {q.Get("product")}, "tenant": {cmp.Or(q.Get("tenant"), "default")}}
		day := u.d.Clock.Now().UTC().Add(-24 * time.Hour).Truncate(time.Hour)
		ask := func(more ...string) string {
			v := maps.Clone(about)
			for i := 0; i < len(more); i += 2 {
				v.Set(more[i], more[i+1])
			}
			return "/v1/usage/estimates?" + v.Encode()
		}
		parts := []part{{"hour", "catalog", ask("window", "1h")},
			{"day", "catalog", ask("from", day.Format(time.RFC3339), "step", "1h")}}
		if by := q.Get("by"); by != "" {
			parts = append(parts, part{"by", "catalog", ask("window", "24h", "by", by)})
		}
		return u.bundle(parts, nil).make(ctx, p, q)
	}}
}

// jobsTopic shows jobs and the nodes that run them.
func (u *UI) jobsTopic() *topic {
	return u.bundle([]part{
		{"jobs", "jobs", "/v1/jobs?namespace=*"},
		{"nodes", "jobs", "/v1/nodes"},
		{"deployments", "jobs", "/v1/deployments?namespace=*"},
	}, nil)
}

// usageTopic shows what is counted, and the limits with what there is of them now.
func (u *UI) usageTopic() *topic {
	return u.bundle([]part{
		{"products", "catalog", "/v1/usage/products"},
		{"tenants", "catalog", "/v1/usage/tenants"},
		{"limits", "catalog", "/v1/usage/limits"},
		{"top", "catalog", "/v1/usage/top"},
	}, nil)
}

func (u *UI) silencesTopic() *topic {
	return u.bundle([]part{{"silences", "monitor", "/api/core/v2/silenced"}}, nil)
}

// clusterTopic shows what operators need: each part needs the right that it has at its own path, the groups and the
// disk that to read the configuration of Raft.
func (u *UI) clusterTopic() *topic {
	return u.bundle([]part{
		{"raft", "catalog", "/v1/operator/raft/configuration"},
		{"autopilot", "catalog", "/v1/operator/autopilot/health"},
		{"members", "catalog", "/v1/agent/members"},
		{"roots", "catalog", "/v1/connect/ca/roots"},
	}, func(out map[string]any) {
		if _, may := out["raft"]; may {
			out["groups"], out["ends"] = ownserver.Groups(u.d), ownserver.CertificateEnd(u.d)
			out["server"], out["disk"] = u.d.Cfg.Node.Name, ownserver.DiskOf(u.d.Metrics)
		}
	})
}

// keyringEvery is how often all members are asked for their gossip keys while somebody looks.
const keyringEvery = time.Minute

// keyringTopic shows which members have which gossip keys, and never a key.
func (u *UI) keyringTopic() *topic {
	plain := func() bool { _, err := u.d.Pool.LocalKeys(); return err != nil }
	t := u.bundle([]part{{"keyring", "catalog", "/v1/operator/keyring"}}, func(out map[string]any) {
		answers, may := out["keyring"].(json.RawMessage)
		delete(out, "keyring")
		switch {
		case may:
			out["keys"] = ownserver.Keys(answers)
		case plain():
			out["problems"] = map[string]string{}
		}
		out["plain"] = plain()
	})
	t.every = keyringEvery
	return t
}

// appliedTopic shows the changes that are behind a cell of the propagation screen, of proxies that the person may read.
func (u *UI) appliedTopic() *topic {
	return &topic{every: examined, rights: u.rightsOfAll, make: func(ctx context.Context, p *uiapi.Person,
		q url.Values) (any, error) {
		return ownserver.AppliedIn(q, func(path string, into any) error { return u.ask.Get(ctx, p, "catalog", path, into) })
	}}
}

// propagationTopic shows the way of changes to proxies: this host's timings, and the proxies that are behind.
func (u *UI) propagationTopic() *topic {
	return u.bundle([]part{
		{"status", "catalog", "/v1/internal/mesh/status"},
		{"proxies", "catalog", "/v1/internal/mesh/proxies"},
	}, func(out map[string]any) {
		if _, may := out["status"]; may {
			out["stages"] = ownserver.Stages(u.d.Metrics)
		}
	})
}
