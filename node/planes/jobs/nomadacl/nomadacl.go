// Package nomadacl is how the Nomad API reaches the catalog's access control: by the API of this process, with the
// token of whoever asks. So rights, forwarding to the catalog's leader and limits are those of every other client.
//
// Catalog is safe for concurrent use. It keeps nothing.
package nomadacl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

// Catalog implements nomadrows.AccessControl.
type Catalog struct {
	// API answers what this process's own HTTP ports answer.
	API http.Handler
	// Nobody is the token of those who have none: without one the process's own would count.
	Nobody string
}

// Ask implements nomadrows.AccessControl.
func (c *Catalog) Ask(ctx context.Context, call nomadrows.AccessCall, out any) (uint64, error) {
	var body []byte
	if call.In != nil {
		var err error
		if body, err = json.Marshal(call.In); err != nil {
			return 0, fmt.Errorf("encode a request of access control: %w", err)
		}
	}
	below := "/v1/acl/"
	if call.Own {
		below = "/v1/internal/acl/"
	}
	at := url.URL{RawQuery: call.Query.Encode()}
	uri := below + call.Path
	if at.RawQuery != "" {
		uri += "?" + at.RawQuery
	}
	r, err := http.NewRequestWithContext(ctx, call.Method, uri, bytes.NewReader(body))
	if err != nil {
		return 0, errkind.E(errkind.Invalid, "", err)
	}
	r.RequestURI, r.RemoteAddr = uri, call.Remote
	token := call.Token
	if token == "" {
		token = c.Nobody
	}
	r.Header.Set("X-Consul-Token", token)
	w := &kept{header: http.Header{}, code: http.StatusOK}
	c.API.ServeHTTP(w, r)
	index, _ := strconv.ParseUint(w.header.Get("X-Consul-Index"), 10, 64) // absent in answers to writes
	if w.code != http.StatusOK {
		return index, refusal(w.code, strings.TrimSpace(w.body.String()))
	}
	if out == nil {
		return index, nil
	}
	if err := json.Unmarshal(w.body.Bytes(), out); err != nil {
		return index, fmt.Errorf("read an answer of access control: %w", err)
	}
	return index, nil
}

// refusal is an answer of the catalog as an error.
func refusal(code int, text string) error {
	kind := errkind.Internal
	switch code {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		kind = errkind.Invalid
	case http.StatusForbidden, http.StatusUnauthorized:
		kind = errkind.Denied
	case http.StatusNotFound:
		kind = errkind.NotFound
	case http.StatusConflict:
		kind = errkind.Conflict
	case http.StatusTooManyRequests:
		kind = errkind.Overloaded
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		kind = errkind.Unavailable
	}
	return errkind.New(kind, text)
}

// kept is an answer in memory.
type kept struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *kept) WriteHeader(code int) { k.code = code }

// Write implements http.ResponseWriter.
func (k *kept) Write(b []byte) (int, error) { return k.body.Write(b) }
