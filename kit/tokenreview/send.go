package tokenreview

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
)

// Send sends an object to a path of the API, as who asks; into nil wants no answer. What the cluster refuses is an
// error of kind NotFound or Conflict (it exists already) where it says so, else Invalid with the cluster's words;
// Unavailable says that it cannot be asked.
func Send(ctx context.Context, c Cluster, method, path string, object, into any) error {
	var body []byte
	if object != nil {
		var err error
		if body, err = json.Marshal(object); err != nil {
			return err
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Host, "/")+path, bytes.NewReader(body))
	if err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	q.Header.Set("Accept", "application/json")
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Authorization", "Bearer "+c.Reviewer)
	status, answer, err := jwks.AskRaw(ctx, c.CA, q)
	if err != nil {
		return errkind.Errorf(errkind.Unavailable, "Kubernetes cannot be asked: %s", errkind.Text(err))
	}
	if status/100 == 2 {
		if into != nil && json.Unmarshal(answer, into) != nil {
			return errkind.Errorf(errkind.Unavailable, "Kubernetes answers %s with no JSON as expected", path)
		}
		return nil
	}
	var said struct{ Message string }
	if json.Unmarshal(answer, &said) != nil || said.Message == "" {
		said.Message = http.StatusText(status)
	}
	kind := errkind.Invalid
	switch {
	case status == http.StatusNotFound:
		kind = errkind.NotFound
	case status == http.StatusConflict:
		kind = errkind.Conflict
	case status >= 500 || status == http.StatusTooManyRequests:
		kind = errkind.Unavailable
	}
	return errkind.Errorf(kind, "Kubernetes answers %s %s with %d: %.300s", method, path, status, said.Message)
}
