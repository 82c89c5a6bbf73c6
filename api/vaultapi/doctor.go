package vaultapi

import (
	"net/http"
	"strings"

	"corbel.dev/corbel/secrets/cluster"
)

// doctor answers sys/doctor and what is below it, which is Corbel's own: false where the path is another, or the
// active server is to answer.
//
// A token that may read the path is needed. A server that cannot judge tokens (it is sealed, stands by, or has lost
// its storage) answers callers of its own host without one: who is there at such an hour has the machine already, and
// needs the answer. A listener answers everybody where the operator says so: evidence names clients, paths and
// stacks, so open metrics do not open it.
func (a *API) doctor(w http.ResponseWriter, r *http.Request, path string, via cluster.Via) bool {
	if a.cfg.Doctor == nil || !(path == "sys/doctor" || path == "sys/doctor/evidence" || path == "sys/doctor/profile") {
		return false
	}
	switch {
	case a.cfg.OpenDoctor:
	case a.cfg.Keeper.Active():
		q, _, err := a.decode(r, path, via)
		if err == nil {
			_, err = a.cfg.Keeper.Handle(r.Context(), q)
		}
		if err != nil {
			fail(w, err)
			return true
		}
	case !remote(r).Addr().Unmap().IsLoopback() || r.Header.Get("X-Forwarded-For") != "" || via.Handed:
		return false
	}
	asked := r.Clone(r.Context())
	asked.URL.Path, asked.URL.RawPath = "/v1/"+strings.TrimPrefix(path, "sys/"), ""
	a.cfg.Doctor.ServeHTTP(w, asked)
	return true
}
