package vaultapi

import "net/http"

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
