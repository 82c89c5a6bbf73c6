// Package gateway finds the ingress gateways through which a service is reached from outside of the mesh,
// and the terminating gateways through which the mesh reaches a service outside of it.
//
// A gateway's config entry names the services behind each listener, "*" being all services that
// speak the listener's protocol. All functions are pure: they read a State and keep nothing.
package gateway

import (
	"iter"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
)

// Ingress yields the instances of the ingress gateways that expose a service, in the order of the gateways' names.
func Ingress(st *statestore.State, service string) iter.Seq[*catalog.Service] {
	return func(yield func(*catalog.Service) bool) {
		for name := range exposing(st, service) {
			for inst := range st.Instances(name) {
				if inst.Kind == catalog.KindIngressGateway && !yield(inst) {
					return
				}
			}
		}
	}
}

// IngressIndex is the newest index of what Ingress looks at: every config entry, and the instances
// of the gateways that expose the service, with their checks and nodes.
func IngressIndex(st *statestore.State, service string) uint64 {
	index := st.RecordsIndex(catalog.RecordConfigEntry)
	for name := range exposing(st, service) {
		index = max(index, st.ServiceIndex(name))
	}
	return index
}

// exposing yields the names of the gateways that expose a service.
func exposing(st *statestore.State, service string) iter.Seq[string] {
	get := func(kind, name string) entry.Entry {
		if r := st.Record(catalog.RecordConfigEntry, entry.Key(kind, name)); r != nil {
			if e, err := entry.Load(kind, r.Value); err == nil {
				return e
			}
		}
		return nil
	}
	return func(yield func(string) bool) {
		const prefix = entry.IngressGateway + "/"
		for r := range st.Records(catalog.RecordConfigEntry, prefix) {
			e, err := entry.Load(entry.IngressGateway, r.Value)
			if err != nil {
				continue // it was valid when it was stored
			}
			if g, ok := e.(*entry.Ingress); ok && Exposes(get, g, service) && !yield(strings.TrimPrefix(r.Key, prefix)) {
				return
			}
		}
	}
}

// Exposes tells whether a gateway has a listener for the service.
func Exposes(get entry.Getter, g *entry.Ingress, service string) bool {
	for _, l := range g.Listeners {
		for _, s := range l.Services {
			if strings.EqualFold(s.Name, service) || s.Name == "*" && entry.Protocol(get, service) == l.Protocol {
				return true
			}
		}
	}
	return false
}

// Terminating yields the names of the terminating gateways that stand for a service, in order. get reads config
// entries.
func Terminating(st *statestore.State, get entry.Getter, service string) iter.Seq[string] {
	return func(yield func(string) bool) {
		const prefix = entry.TerminatingGateway + "/"
		for r := range st.Records(catalog.RecordConfigEntry, prefix) {
			name := strings.TrimPrefix(r.Key, prefix)
			g, ok := get(entry.TerminatingGateway, name).(*entry.Terminating)
			if ok && links(st, g, service) && !yield(name) {
				return
			}
		}
	}
}

func links(st *statestore.State, g *entry.Terminating, service string) bool {
	wildcard := false
	for _, s := range g.Services {
		if strings.EqualFold(s.Name, service) {
			return true
		}
		wildcard = wildcard || s.Name == "*"
	}
	return wildcard && Outside(st, service)
}

// Outside tells whether a service is there, and nothing of the mesh stands before any of its instances: a wildcard of
// a terminating gateway means those.
func Outside(st *statestore.State, service string) bool {
	for range st.ConnectInstances(service) {
		return false
	}
	for s := range st.Instances(service) {
		return s.Kind == catalog.KindTypical && s.Name != catalog.ServerServiceName
	}
	return false
}

// TerminatingMark changes with every change of an entry that Terminating looks at. It is no index: it may go down.
func TerminatingMark(st *statestore.State) (mark uint64) {
	for r := range st.Records(catalog.RecordConfigEntry, entry.TerminatingGateway+"/") {
		mark = mark*31 + r.ModifyIndex + 1
	}
	return mark
}
