package usageplane

import (
	"context"
	"errors"
	"testing"
	"time"

	"corbel.dev/corbel/usage/router"
)

// TestRefusals: whichever server has rejected an event, each of them can say why.
func TestRefusals(t *testing.T) {
	knows := func(server string) refusals {
		return refusals{own: func(tenant, source, id string) (router.Refused, bool) {
			return router.Refused{Tenant: tenant, Source: source, ID: id, At: time.Unix(5, 7), Error: "value: is missing"},
				tenant == "acme" && source == "gate" && id == server
		}}
	}
	asker := knows("own")
	asker.others = func() []string { return []string{"silent", "damaged", "other"} }
	asker.call = func(ctx context.Context, server, method string, req []byte) ([]byte, error) {
		switch {
		case method != methodRefused || server == "silent":
			return nil, errors.New("it does not answer")
		case server == "damaged":
			return []byte{1, 0xff}, nil
		}
		return knows(server).serve(ctx, req)
	}
	for _, id := range []string{"own", "other"} {
		why, ok := asker.find(t.Context(), "acme", "gate", id)
		if !ok || why.ID != id || why.Error != "value: is missing" || !why.At.Equal(time.Unix(5, 7)) {
			t.Errorf("%s: %+v, %t", id, why, ok)
		}
	}
	for _, event := range [][3]string{{"acme", "gate", "none"}, {"rival", "gate", "other"}} {
		if why, ok := asker.find(t.Context(), event[0], event[1], event[2]); ok {
			t.Errorf("%v: %+v", event, why)
		}
	}
	if _, err := asker.serve(t.Context(), []byte{9}); err == nil {
		t.Error("a damaged question was answered")
	}
}
