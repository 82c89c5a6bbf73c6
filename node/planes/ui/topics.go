package uiplane

import (
	"context"
	"net/url"
	"strconv"
	"sync/atomic"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/node/planes/ui/keyviews"
	"corbel.dev/corbel/node/planes/ui/places"
	"corbel.dev/corbel/node/planes/ui/storedrows"
	"corbel.dev/corbel/node/planes/ui/whomay"
)

// topics are those of all planes of this server.
func (u *UI) topics() map[string]uiapi.Topic {
	f := newFleet(u.d.Catalog.Registry.State, u.d.Grant)
	f.read = u.wasRead()
	return map[string]uiapi.Topic{
		"services":  f.topic(f.servicesTopic),
		"instances": f.topic(f.instancesTopic),
		"nodes":     f.topic(f.nodesTopic),
		"nodemap":   f.topic(f.mapTopic),
		"room":      roomTopic(u),
		"roommap":   roomMapTopic(u, f),
		"kv":        f.topic(keyviews.List),
		"key":       f.topic(keyviews.One),
		"entries": f.topic(func(_ context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
			return storedrows.Entries(g, st, q), nil
		}),
		"queries": f.topic(func(_ context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
			return storedrows.Queries(g, st, q)
		}),
		"overview":    u.overviewTopic(f),
		"doctor":      u.doctorTopic(),
		"incidents":   u.incidentsTopic(),
		"silences":    u.silencesTopic(),
		"changes":     u.changesTopic(),
		"jobs":        u.jobsTopic(),
		"usage":       u.usageTopic(),
		"counted":     countedTopic(u),
		"secrets":     u.bundle(secretsParts, nil),
		"mesh":        u.meshTopic(f),
		"standing":    standingTopic(u),
		"cluster":     u.clusterTopic(),
		"whomay":      f.topic(whoMay(u)),
		"keyring":     u.keyringTopic(),
		"propagation": u.propagationTopic(),
		"applied":     u.appliedTopic(),
		"federation":  u.federationTopic(),
		"everywhere":  u.everywhereTopic(),
	}
}

// whoMay answers who may do something, to who may read the tokens.
func whoMay(u *UI) showing {
	fallback := acl.Deny
	if own := &u.d.Cfg.ACL; !own.Enabled || own.DefaultPolicy == "allow" {
		fallback = acl.Write
	}
	return func(_ context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
		if err := g.Check(acl.ACL, "", acl.Read); err != nil {
			return nil, err
		}
		question, err := whomay.Read(q)
		if err != nil {
			return nil, err
		}
		return whomay.Of(st, u.d.Cfg.Node.Datacenter, fallback, question, u.d.Clock.Now()), nil
	}
}

// wasRead tells whether this server has applied its log once, as its leader knows it.
func (u *UI) wasRead() func() bool {
	var done atomic.Bool
	return func() bool {
		raft := u.d.Catalog.Raft.Load()
		if done.Load() || raft == nil {
			return done.Load()
		}
		last, err := strconv.ParseUint(raft.Stats()["last_log_index"], 10, 64)
		if err == nil && u.d.Catalog.LeaderAddr() != "" && raft.AppliedIndex() >= last {
			done.Store(true)
		}
		return done.Load()
	}
}

// search finds services, nodes and keys whose names have the text in them.
func (u *UI) search(ctx context.Context, p uiapi.Person, text string) ([]uiapi.Place, error) {
	g, err := u.d.Grant(ctx, p.Catalog)
	if err != nil {
		return nil, err
	}
	return places.Named(g, u.d.Catalog.Registry.State(), text), nil
}
