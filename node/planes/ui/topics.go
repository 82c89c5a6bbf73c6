package uiplane

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog/acl"
)

// topics are those of all planes of this server.
func (u *UI) topics() map[string]uiapi.Topic {
	f := newFleet(u.d.Catalog.Registry.State, u.d.Grant)
	f.read = u.wasRead()
	return map[string]uiapi.Topic{
		"services":    f.topic(f.servicesTopic),
		"instances":   f.topic(f.instancesTopic),
		"nodes":       f.topic(f.nodesTopic),
		"nodemap":     f.topic(f.mapTopic),
		"room":        roomTopic(u),
		"kv":          f.topic(f.keysTopic),
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
		"cluster":     u.clusterTopic(),
		"keyring":     u.keyringTopic(),
		"propagation": u.propagationTopic(),
		"applied":     u.appliedTopic(),
		"federation":  u.federationTopic(),
		"everywhere":  u.everywhereTopic(),
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

// maxPlaces bounds what a search finds of each kind.
const maxPlaces = 8

// search finds services, nodes and keys whose names have the text in them.
func (u *UI) search(ctx context.Context, p uiapi.Person, text string) (out []uiapi.Place, err error) {
	g, err := u.d.Grant(ctx, p.Catalog)
	if err != nil {
		return nil, err
	}
	st, text := u.d.Catalog.Registry.State(), strings.ToLower(strings.TrimSpace(text))
	found := 0
	add := func(kind, name, path string) bool {
		if strings.Contains(strings.ToLower(name), text) {
			out, found = append(out, uiapi.Place{Name: name, Kind: kind, Path: path}), found+1
		}
		return found < maxPlaces
	}
	for s := range st.ServiceNames() {
		if g.Allow(acl.Service, s.Name, acl.Read) && !add("service", s.Name, "/services/"+url.PathEscape(s.Name)) {
			break
		}
	}
	found = 0
	for n := range st.Nodes() {
		if g.Allow(acl.Node, n.Name, acl.Read) && !add("node", n.Name, "/nodes?q="+url.QueryEscape(n.Name)) {
			break
		}
	}
	if found = 0; text != "" {
		for k := range st.KVPrefix("") {
			if g.Allow(acl.Key, k.Key, acl.Read) && !add("key", k.Key, "/kv/"+escapeKey(k.Key)+"?key=1") {
				break
			}
		}
	}
	return out, nil
}

func escapeKey(key string) string {
	parts := strings.Split(key, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
