package vaultapi

import (
	"net/http"
	"strings"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/tools"
)

func (a *API) openMetrics(w http.ResponseWriter, r *http.Request) {
	if !method(w, r, http.MethodGet) {
		return
	}
	format := r.URL.Query().Get("format")
	if format != "" && format != "prometheus" {
		writeError(w, http.StatusBadRequest, "format: may be prometheus")
		return
	}
	contentType, body, err := a.cfg.OpenMetrics(format == "prometheus")
	if err != nil {
		fail(w, err)
		return
	}
	write(w, http.StatusOK, []string{contentType}, body)
}

// insight answers sys/pprof and sys/in-flight-req to everybody, where the listener does. They tell of this server,
// also while it is sealed or a standby.
func (a *API) insight(w http.ResponseWriter, r *http.Request, path string) bool {
	name, profile := strings.CutPrefix(path, "sys/pprof")
	profile = profile && a.cfg.OpenProfiles && (name == "" || name[0] == '/')
	flying := path == "sys/in-flight-req" && a.cfg.OpenInFlight
	switch {
	case !profile && !flying:
		return false
	case !method(w, r, http.MethodGet):
	case flying:
		writeJSON(w, http.StatusOK, a.cfg.Keeper.InFlight())
	default:
		raw, err := tools.Profile(r.Context(), strings.Trim(name, "/"), secrets.FieldsOf(queryValues(r.URL.Query())))
		if err != nil {
			fail(w, err)
		} else {
			write(w, http.StatusOK, []string{raw.ContentType}, raw.Body)
		}
	}
	return true
}
