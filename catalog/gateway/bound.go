package gateway

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
)

// Bound is bound-api-gateway: what the listeners of an api gateway really have. Nobody writes it; it follows from the
// gateway's entry, the routes and the certificates.
type Bound struct {
	entry.Common
	Listeners []BoundListener
	// Created is when the gateway's entry was made. Modified is when any entry changed last: what is unbound leaves no
	// index of its own.
	Created  uint64 `json:"-"`
	Modified uint64 `json:"-"`
}

// BoundListener is one listener with its routes and certificates.
type BoundListener struct {
	Name         string
	Routes       []entry.Reference
	Certificates []entry.Reference
}

// BoundOf works out what is bound to a gateway; nil when there is no such gateway.
func BoundOf(st *statestore.State, get entry.Getter, routes *Routes, name string) *Bound {
	e, ok := get(entry.APIGateway, name).(*entry.API)
	if !ok {
		return nil
	}
	out := &Bound{Common: entry.Common{Kind: entry.BoundAPIGateway, Name: name, Meta: e.Meta},
		Listeners: []BoundListener{}, Modified: st.RecordsIndex(catalog.RecordConfigEntry)}
	if r := st.Record(catalog.RecordConfigEntry, entry.Key(entry.APIGateway, name)); r != nil {
		out.Created = r.CreateIndex
	}
	for i := range e.Listeners {
		l := &e.Listeners[i]
		b := BoundListener{Name: l.Name, Routes: []entry.Reference{}, Certificates: []entry.Reference{}}
		if Unusable(get, l) == "" { // else nothing is bound to it
			for _, r := range routes.OfHTTP(name, l) {
				b.Routes = append(b.Routes, entry.Reference{Kind: entry.HTTPRoute, Name: r.Name})
			}
			for i, r := range routes.OfTCP(name, l) {
				if i > 0 {
					break // a listener for connections serves the first
				}
				b.Routes = append(b.Routes, entry.Reference{Kind: entry.TCPRoute, Name: r.Name})
			}
			b.Certificates = append(b.Certificates, l.TLS.Certificates...)
		}
		out.Listeners = append(out.Listeners, b)
	}
	return out
}
