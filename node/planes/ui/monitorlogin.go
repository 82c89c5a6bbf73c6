package uiplane

import (
	"net/http"
	"strings"

	"corbel.dev/corbel/api/uiapi"
)

// monitorProviders is what the login form needs of the monitor plane's providers: a *monitorplane.Web.
type monitorProviders interface {
	Providers() []string
	BeginAt(r *http.Request, provider, origin, nonce string) (address, state string, err error)
	EndAt(r *http.Request, state, code, nonce string) (session, user string, err error)
}

const atMonitor = "monitor:" // begins the id of a method; the provider's name follows

// ofMonitor are the providers of the monitor plane: their names are in memory.
func (b *browsers) ofMonitor() (list []uiapi.Method) {
	if b.monitor == nil {
		return nil
	}
	names := b.monitor.Providers()
	for _, name := range names[:min(len(names), mostMethods)] {
		list = append(list, uiapi.Method{ID: atMonitor + name, Name: name})
	}
	return list
}

// beginAtMonitor begins a login at one of them; ok is false where the method is none of theirs.
func (b *browsers) beginAtMonitor(r *http.Request, v *uiapi.Visit) (address, state string, ok bool, err error) {
	name, ok := strings.CutPrefix(v.Method, atMonitor)
	if !ok || b.monitor == nil {
		return "", "", false, nil
	}
	address, state, err = b.monitor.BeginAt(r, name, v.Origin, v.Nonce)
	return address, state, true, err
}

// endAtMonitor ends it.
func (b *browsers) endAtMonitor(r *http.Request, method, state, code, nonce string) (p uiapi.Person, ok bool,
	err error) {
	if !strings.HasPrefix(method, atMonitor) || b.monitor == nil {
		return p, false, nil
	}
	p.Remote = r.RemoteAddr
	p.Monitor, p.Name, err = b.monitor.EndAt(r, state, code, nonce)
	return p, true, err
}
