package uiplane

import (
	"bytes"
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
	// maxAnswer bounds what one question may bring into memory.
	maxAnswer = 32 << 20
)

// asker asks the planes' own APIs, in this process, with the rights of a person.
type asker struct{ planes map[string]uiapi.Plane }

func (a *asker) get(ctx context.Context, p *uiapi.Person, plane, path string, into any) error {
	return a.send(ctx, p, http.MethodGet, plane, path, nil, into)
}

func (a *asker) send(ctx context.Context, p *uiapi.Person, method, plane, path string, body, into any) error {
	to, ok := a.planes[plane]
	if !ok {
		return errkind.Errorf(errkind.Unavailable, "the %s plane is not on this server", plane)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
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
	w := &httpx.Recorder{Head: http.Header{}, Most: maxAnswer}
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
	return errkind.New(kind, words(w.Body))
}

// words are what an answer says is wrong, whichever plane's form it has.
func words(body []byte) string {
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
