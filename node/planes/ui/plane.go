// Package uiplane wires the web UI: the page, what it asks (api/uiapi), the login, and the topics of all planes of this
// server. It decides nothing and stores nothing: whatever it shows was asked of a plane with the rights of the person
// who looks, and what is made for one person is shared with all who have the same rights.
package uiplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/api/uiapi/sessionfiles"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	jobsplane "corbel.dev/corbel/node/planes/jobs"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	"corbel.dev/corbel/node/planes/ui/farplaces"
	"corbel.dev/corbel/node/planes/ui/pastchanges"
	"corbel.dev/corbel/node/planes/ui/planeasker"
	"corbel.dev/corbel/node/planes/ui/secretlogin"
	usageplane "corbel.dev/corbel/node/planes/usage"
	"corbel.dev/corbel/ui"
)

// UI is the web UI of a server.
type UI struct {
	plane.Idle
	d        *plane.Doors
	secrets  *secretsplane.Part // nil where it is not here
	monitor  *monitorplane.Web  // the same
	jobs     *jobsplane.Plane   // the same
	ask      planeasker.Asker
	dev      devSession
	seen     pastchanges.Changes
	reports  reports
	far      farplaces.Places
	dcs      datacenters
	clusters clusters
	own      *httpx.Server // at an address of its own; nil without one
}

// Kind is the plane as a process lists it; it comes last, since it asks the others.
func Kind() plane.Kind { return plane.Kind{Name: "ui", Check: check, Open: open} }

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
	if err := check(d.Cfg); err != nil {
		return nil, err
	}
	u := &UI{d: d, secrets: plane.Find[*secretsplane.Part](d.Planes)}
	if m := plane.Find[*monitorplane.Plane](d.Planes); m != nil {
		u.monitor = m.Web
	}
	u.jobs = plane.Find[*jobsplane.Plane](d.Planes)
	u.ask = planeasker.Asker{Planes: u.planes()}
	u.dcs = datacenters{ask: &u.ask, far: &u.far, own: d.Cfg.Node.Datacenter}
	u.clusters = clusters{ask: &u.ask, far: &u.far, web: u.monitor, http: farClient(), own: u.dcs.own, now: d.Clock.Now}
	in := &browsers{Providers: secretlogin.Providers{Ask: &u.ask}}
	if u.monitor != nil {
		in.monitor = u.monitor
	}
	api := uiapi.New(uiapi.Config{Clock: d.Clock, Keep: kept(d), Login: u.login, Open: u.open, Topics: u.topics(),
		Search: u.search, Planes: u.ask.Planes, About: u.about,
		Browser: in, Leave: leave(&u.ask)})
	mux := http.NewServeMux()
	mux.Handle("/ui/api/", api)
	mux.Handle("/", ui.Handler())
	d.SetFront(ui.Serves, mux)
	if d.Cfg.UI.Address == "" {
		return u, nil
	}
	return u, u.listen(mux)
}

// kept is where sessions outlive a restart; nil where the server has no folder.
func kept(d *plane.Doors) uiapi.Keeping {
	if d.Cfg.DataDir == "" {
		return nil
	}
	return &sessionfiles.Files{Dir: filepath.Join(d.Cfg.DataDir, "ui-sessions"), FS: d.FS, Log: d.Log}
}

// listen opens the address that is the page's alone.
func (u *UI) listen(page http.Handler) (err error) {
	cfg := &u.d.Cfg.UI
	at := httpx.Listen{Address: cfg.Address}
	if cfg.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return fmt.Errorf("ui_config.cert_file, key_file: %w", err)
		}
		at.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	}
	door := http.NewServeMux()
	door.Handle("/ui/", page)
	door.Handle("/ui", page)
	door.Handle("/{$}", http.RedirectHandler(ui.Prefix, http.StatusFound))
	u.own, err = httpx.NewServer(httpx.ServerConfig{Name: "ui", Listen: []httpx.Listen{at}, Handler: door,
		Conns: u.d.Ports.HTTP, Bytes: u.d.Ports.Bytes, Logger: u.d.Log, Metrics: u.d.Metrics})
	if err == nil {
		err = u.own.Bind()
	}
	if err != nil {
		return fmt.Errorf("ui_config.address: %w", err)
	}
	return nil
}

// Run implements plane.Plane: all work is done for requests, but for looking what comes and goes, and asking places
// that may be slow.
func (u *UI) Run(ctx context.Context) error {
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { u.seen.Run(ctx, u.d.Catalog.Registry.State, u.d.Clock.Now) })
	looking.Go(func() { u.far.Run(ctx) })
	defer u.clusters.http.CloseIdleConnections()
	if u.own != nil {
		return u.own.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

// check refuses an address that shows a login to the network in plain text.
func check(cfg *config.Config) error {
	own := &cfg.UI
	if own.Address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(own.Address)
	switch {
	case err != nil:
		return fmt.Errorf("ui_config.address: %w", err)
	case (own.CertFile == "") != (own.KeyFile == ""):
		return errors.New("ui_config.cert_file, key_file: one needs the other")
	case own.CertFile == "" && cfg.Cautious() && !ownHost(host):
		return errors.New("ui_config.address: beyond loopback it needs ui_config.cert_file and key_file")
	}
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
		out["secrets"] = secretlogin.API(u.secrets.API())
	}
	if u.jobs != nil {
		out["jobs"] = uiapi.Plane{Handler: u.jobs.API(), Attach: func(r *http.Request, p *uiapi.Person) error {
			r.Header.Del("Authorization")
			r.Header.Set("X-Nomad-Token", p.Catalog)
			return nil
		}}
	}
	if u.monitor != nil {
		attach := func(r *http.Request, p *uiapi.Person) error { return u.monitor.Authorize(r, p.Monitor) }
		out["monitor"] = uiapi.Plane{Handler: u.monitor.API, Attach: attach}
		out[elsewhere] = uiapi.Plane{Handler: &u.clusters, Attach: attach}
	}
	return out
}

// about is what the page is told of this server: which planes are here, and to which the person has logged in.
func (u *UI) about(p *uiapi.Person) map[string]any {
	return map[string]any{"datacenter": u.d.Cfg.Node.Datacenter, "node": u.d.Cfg.Node.Name, "dev": u.d.Cfg.Dev,
		"planes": map[string]bool{"catalog": true, "secrets": u.secrets != nil, "monitor": u.monitor != nil,
			"jobs": u.jobs != nil, "usage": plane.Find[*usageplane.Plane](u.d.Planes) != nil},
		"logins": map[string]bool{"catalog": p.Catalog != "" || !u.d.Cfg.ACL.Enabled, "secrets": p.Secrets != "",
			"monitor": p.Monitor != ""}}
}
