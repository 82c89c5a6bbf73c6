package migrate

import (
	"context"
	"net/http"
	"reflect"

	"corbel.dev/corbel/client"
)

// entryKinds are the kinds of config entries, those that others build on first.
// bound-api-gateway is left out: servers make it from the routes.
var entryKinds = []string{"proxy-defaults", "mesh", "jwt-provider", "service-defaults", "service-resolver",
	"service-splitter", "service-router",
	"service-intentions", "ingress-gateway", "terminating-gateway", "inline-certificate", "file-system-certificate",
	"api-gateway", "http-route", "tcp-route",
	"exported-services", "sameness-group", "control-plane-request-limit"}

func (r *run) configEntries(ctx context.Context) error {
	var firstErr error
	failures := 0
	for _, kind := range entryKinds {
		all, err := list(ctx, r.cfg.From, "/v1/config/"+kind)
		if err != nil {
			// An older Consul does not know all kinds: that is no entry lost.
			if failures++; firstErr == nil {
				firstErr = err
			}
			continue
		}
		for _, entry := range all {
			want, _ := clean(entry).(object)
			name := kind + "/" + text(want, "Name")
			have, err := one(ctx, r.cfg.To, "/v1/config/"+kind+"/"+client.Escape(text(want, "Name")))
			if err != nil {
				r.fail("config", name, err)
				continue
			}
			r.place("config", name, want, nilIfEmpty(have), func() error { return r.put(ctx, "/v1/config", want) })
		}
	}
	if failures == len(entryKinds) {
		return firstErr
	}
	return nil
}

// intentions come with the config entries of their destinations; those of a Consul that kept them apart come here.
func (r *run) intentions(ctx context.Context) error {
	all, err := list(ctx, r.cfg.From, "/v1/connect/intentions")
	if err != nil {
		return err
	}
	for _, entry := range all {
		want, _ := clean(entry).(object)
		source, destination := text(want, "SourceName"), text(want, "DestinationName")
		name := source + " => " + destination
		if text(want, "SourcePeer") != "" {
			r.skip("intentions", name, "its source is a peer: it comes with the config entry of its destination")
			continue
		}
		q := client.Query{}.Values()
		q.Set("source", source)
		q.Set("destination", destination)
		var have object
		err := r.cfg.To.Send(ctx, http.MethodGet, "/v1/connect/intentions/exact", q, nil, &have)
		if err != nil && !missing(err) {
			r.fail("intentions", name, err)
			continue
		}
		body := object{"SourceType": "consul", "SourceName": source, "DestinationName": destination}
		for _, field := range []string{"Action", "Permissions", "Description", "Meta"} {
			if v, ok := want[field]; ok {
				body[field] = v
			}
		}
		if r.cfg.DryRun && have == nil && r.planned(destination) {
			continue // its entry was counted
		}
		var there any
		if have != nil {
			there = strip(have, "ID", "SourceNS", "DestinationNS", "SourcePartition", "DestinationPartition", "DefaultAddr",
				"DefaultPort")
		}
		r.place("intentions", name, body, there, func() error {
			return r.cfg.To.Put(ctx, "/v1/connect/intentions/exact", q, body, nil)
		})
	}
	return nil
}

// planned tells whether a dry run would make the entry of a destination.
func (r *run) planned(destination string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range r.report.Items {
		if it.Kind == "config" && it.Name == "service-intentions/"+destination {
			return true
		}
	}
	return false
}

// sameAs finds want among objects, leaving out fields; nil when it is not there.
func sameAs(want object, all []object, without ...string) any {
	for _, o := range all {
		if reflect.DeepEqual(clean(plain(want)), clean(plain(strip(copyOf(o), without...)))) {
			return want
		}
	}
	return nil
}

// queries are found by their names, those without one by being the same.
func (r *run) queries(ctx context.Context) error {
	all, err := list(ctx, r.cfg.From, "/v1/query")
	if err != nil || len(all) == 0 {
		return err
	}
	there, err := list(ctx, r.cfg.To, "/v1/query")
	if err != nil {
		return err
	}
	for _, want := range all {
		name := text(want, "Name")
		if text(want, "Session") != "" {
			r.skip("queries", name, "belongs to a session, which does not move")
			continue
		}
		if text(want, "Token") == "<hidden>" {
			delete(want, "Token")
		}
		strip(want, append([]string{"ID"}, volatile...)...)
		have := sameAs(want, there, "ID")
		id := ""
		for _, o := range there {
			if have == nil && name != "" && text(o, "Name") == name {
				id = text(o, "ID")
				have = strip(copyOf(o), "ID")
			}
		}
		r.place("queries", name, want, have, func() error {
			if id != "" {
				return r.put(ctx, "/v1/query/"+id, want)
			}
			return r.cfg.To.Send(ctx, http.MethodPost, "/v1/query", nil, want, nil)
		})
	}
	return nil
}
