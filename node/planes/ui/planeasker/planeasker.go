// Package planeasker asks the planes' own APIs, in this process, with the rights of a person, as their ports would be
// asked: what the web UI shows and does is judged there. Questions and answers are bounded in time and bytes. An Asker
// is safe for concurrent use.
package planeasker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// askTime bounds a question of a screen: whatever happens there, an answer or why there is none is shown in 5 s.
	askTime = 4 * time.Second
	// MaxAnswer bounds what one question may bring into memory.
	MaxAnswer = 32 << 20
)

// Asker asks the planes of a server, by their names.
type Asker struct {
	Planes map[string]uiapi.Plane
	Time   time.Duration // that a question may take; 0 is that of a screen
}

// Has tells whether a plane is on this server.
func (a *Asker) Has(plane string) bool { return a.Planes[plane].Handler != nil }

// Get asks a path of a plane and decodes the answer. Errors have the kind that the answer's status tells.
func (a *Asker) Get(ctx context.Context, p *uiapi.Person, plane, path string, into any) error {
	return a.Send(ctx, p, http.MethodGet, plane, path, nil, into)
}

// Send is Get for any method, with a body as JSON where it is not nil; into may be nil.
func (a *Asker) Send(ctx context.Context, p *uiapi.Person, method, plane, path string, body, into any) error {
	to, ok := a.Planes[plane]
	if !ok {
		return errkind.Errorf(errkind.Unavailable, "the %s plane is not on this server", plane)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.Time, askTime))
	defer cancel()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.RequestURI, r.RemoteAddr = path, p.Remote
	if err := to.Attach(r, p); err != nil {
		return err
	}
	w := &httpx.Recorder{Head: http.Header{}, Most: MaxAnswer}
	if err := httpx.Whole(func() { to.Handler.ServeHTTP(w, r) }); err != nil {
		return err
	}
	if err := failed(w); err != nil || into == nil || len(w.Body) == 0 {
		return err
	}
	return json.Unmarshal(w.Body, into)
}

// failed is the error that an answer tells of.
func failed(w *httpx.Recorder) error {
	if w.Status == 0 || w.Status/100 == 2 {
		return nil
	}
	kind := errkind.Unavailable
	switch w.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = errkind.Denied
	case http.StatusNotFound:
		kind = errkind.NotFound
	case http.StatusBadRequest:
		kind = errkind.Invalid
	}
	return errkind.New(kind, Words(w.Body))
}

// Words are what an answer says is wrong, whichever plane's form it has.
func Words(body []byte) string {
	var vault struct {
		Errors []string `json:"errors"`
	}
	var sensu struct {
		Message string `json:"message"`
	}
	switch {
	case json.Unmarshal(body, &vault) == nil && len(vault.Errors) > 0:
		return strings.TrimSpace(strings.Join(vault.Errors, "; "))
	case json.Unmarshal(body, &sensu) == nil && sensu.Message != "":
		return sensu.Message
	}
	return strings.TrimSpace(string(body))
}
