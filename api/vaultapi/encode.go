package vaultapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

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
	if r.Data == nil && r.Token == nil && len(r.Warnings) == 0 && r.Lease == nil {
		write(w, http.StatusNoContent, nil, nil)
		return
	}
	status := http.StatusOK
	if r.Missing {
		status = http.StatusNotFound
	}
	write(w, status, jsonType, envelope(nil, q, r))
}

// envelope encodes the contract's 1.2: all keys, in the order that Vault's are in.
func envelope(out []byte, q *secrets.Request, r *keeper.Reply) []byte {
	out = append(out, `{"request_id":"`...)
	out = append(out, q.ID...)
	out = append(out, `","lease_id":"","renewable":false,"lease_duration":`...)
	out = strconv.AppendInt(out, int64(r.LeaseTTL/time.Second), 10)
	out = append(out, `,"data":`...)
	if r.Data == nil {
		out = append(out, "null"...)
	} else {
		out = append(out, r.Data...)
	}
	out = append(out, `,"wrap_info":null,"warnings":`...)
	if len(r.Warnings) == 0 {
		out = append(out, "null"...)
	} else {
		out = appendJSON(out, r.Warnings)
	}
	out = append(out, `,"auth":`...)
	if r.Token == nil {
		out = append(out, "null"...)
	} else {
		out = appendJSON(out, auth(r.Token))
	}
	out = append(out, `,"mount_type":"`...)
	out = append(append(out, r.Mount.Type...), '"')
	if r.Hoisted(q.Path) && len(r.Data) > 2 && r.Data[0] == '{' { // its members, at the top too
		out = append(append(out, ','), r.Data[1:len(r.Data)-1]...)
	}
	return append(out, '}', '\n')
}

func auth(t *keeper.Issued) map[string]any {
	return map[string]any{"client_token": t.ID, "accessor": t.Accessor, "policies": t.Policies, "token_policies": t.Policies, "metadata": t.Meta,
		"lease_duration": int64(t.Left.Round(time.Second) / time.Second), "renewable": t.Renewable && !t.Expires.IsZero(), "entity_id": t.Entity,
		"token_type": secrets.Service.String(), "orphan": t.Parent == "", "mfa_requirement": nil, "num_uses": max(t.Uses, 0)}
}
