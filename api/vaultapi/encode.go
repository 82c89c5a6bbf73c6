package vaultapi

import (
	"encoding/json"
	"net/http"
	"strconv"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/keeper"
)

func appendJSON(out []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return append(out, "null"...) // of strings, numbers and lists of them: cannot be
	}
	return append(out, text...)
}

var jsonType = []string{"application/json"}

func write(w http.ResponseWriter, status int, contentType []string, body []byte) {
	h := w.Header()
	h["Cache-Control"] = []string{"no-store"}
	if contentType != nil {
		h["Content-Type"] = contentType
	}
	if len(body) > 0 {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	write(w, status, jsonType, append(appendJSON(nil, v), '\n'))
}

func writeError(w http.ResponseWriter, status int, texts ...string) {
	if texts == nil {
		texts = []string{}
	}
	writeJSON(w, status, map[string][]string{"errors": texts})
}

// answer writes the keeper's reply.
func answer(w http.ResponseWriter, q *secrets.Request, r *keeper.Reply) {
	if r.Raw != nil {
		write(w, http.StatusOK, []string{r.Raw.ContentType}, r.Raw.Body)
		return
	}
	if r.Data == nil && r.Token == nil && len(r.Warnings) == 0 && r.Lease == nil && r.Wrap == nil {
		write(w, http.StatusNoContent, nil, nil)
		return
	}
	status := http.StatusOK
	if r.Missing {
		status = http.StatusNotFound
	}
	write(w, status, jsonType, r.Envelope(nil, q, true))
}
