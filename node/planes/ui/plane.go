// Package uiplane wires the web UI: the page, what it asks (api/uiapi), the login, and the topics of all planes of this
// server. It decides nothing and stores nothing: whatever it shows was asked of a plane with the rights of the person
// who looks, and what is made for one person is shared with all who have the same rights.
package uiplane

import (
	"context"
	"net/http"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/node/plane"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	"corbel.dev/corbel/ui"
)

// UI is the web UI of a server.
type UI struct {
	plane.Idle
	d       *plane.Doors
	secrets *secretsplane.Part // nil where it is not here
	monitor *monitorplane.Web  // the same
	ask     asker
	dev     devSession
}

// Kind is the plane as a process lists it; it comes last, since it asks the others.
func Kind() plane.Kind { return plane.Kind{Name: "ui", Open: open} }

func open(d *plane.Doors) (plane.Plane, error) {
	if !d.Cfg.UI.Enabled {
		return nil, nil
	}
	if d.Catalog == nil {
		d.SetFront(ui.Serves, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the web UI is served by servers: open /ui at the HTTP port of one of them", http.StatusNotFound)
		}))
		return nil, nil
	}
	u := &UI{d: d, secrets: plane.Find[*secretsplane.Part](d.Planes)}
	if m := plane.Find[*monitorplane.Plane](d.Planes); m != nil {
		u.monitor = m.Web
	}
	u.ask = asker{planes: u.planes()}
	api := uiapi.New(uiapi.Config{Clock: d.Clock, Login: u.login, Open: u.open, Topics: u.topics(), Search: u.search,
		Planes: u.ask.planes, About: u.about})
	mux := http.NewServeMux()
	mux.Handle("/ui/api/", api)
	mux.Handle("/", ui.Handler())
	d.SetFront(ui.Serves, mux)
	return u, nil
}

// Run implements plane.Plane: all work is done for requests.
func (u *UI) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// planes are the APIs that are reached with the person's rights.
func (u *UI) planes() map[string]uiapi.Plane {
	out := map[string]uiapi.Plane{"catalog": {Handler: u.d.OwnAPI(), Attach: func(r *http.Request, p *uiapi.Person) error {
		r.Header.Del("Authorization")
		r.Header.Del("X-Consul-Token")
		if p.Catalog != "" {
			r.Header.Set("X-Consul-Token", p.Catalog)
		}
		return nil
	}}}
	if u.secrets != nil {
		out["secrets"] = uiapi.Plane{Handler: u.secrets.API(), Attach: func(r *http.Request, p *uiapi.Person) error {
			r.Header.Del("Authorization")
			r.Header.Set("X-Vault-Token", p.Secrets)
			r.Header.Set("X-Vault-Request", "true")
			return nil
		}}
	}
	if u.monitor != nil {
		out["monitor"] = uiapi.Plane{Handler: u.monitor.API, Attach: func(r *http.Request, p *uiapi.Person) error {
			return u.monitor.Authorize(r, p.Monitor)
		}}
	}
	return out
}

// about is what the page is told of this server: which planes are here, and to which the person has logged in.
func (u *UI) about(p *uiapi.Person) map[string]any {
	return map[string]any{"datacenter": u.d.Cfg.Node.Datacenter, "node": u.d.Cfg.Node.Name, "dev": u.d.Cfg.Dev,
		"planes": map[string]bool{"catalog": true, "secrets": u.secrets != nil, "monitor": u.monitor != nil},
		"logins": map[string]bool{"catalog": p.Catalog != "" || !u.d.Cfg.ACL.Enabled, "secrets": p.Secrets != "",
			"monitor": p.Monitor != ""}}
}
