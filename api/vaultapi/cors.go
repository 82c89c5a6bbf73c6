package vaultapi

import (
	"net/http"
	"strings"
)

// corsMethods are what pages of other origins may do.
const corsMethods = "DELETE, GET, OPTIONS, POST, PUT, LIST, PATCH"

// cors answers browsers that ask whether a page of another origin may come in, and tells them so on answers. It is
// false where the request is answered by that.
func (a *API) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	settings := a.cfg.Keeper.CORS()
	if !settings.Enabled {
		return true
	}
	asks := r.Method == http.MethodOptions
	if asks && r.Header.Get("Access-Control-Request-Method") == "" {
		writeError(w, http.StatusMethodNotAllowed)
		return false
	}
	if !settings.Allows(origin) {
		writeError(w, http.StatusForbidden, "origin not allowed")
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Vary", "Origin")
	if !asks {
		return true
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", strings.Join(settings.Headers, ","))
	h.Set("Access-Control-Max-Age", "300")
	write(w, http.StatusNoContent, nil, nil)
	return false
}
