package usageplane

import (
	"context"
	"errors"
	"testing"
	"time"

	"corbel.dev/corbel/usage/counter"
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

// TestRejected: a list of what was rejected has that of all servers, and names those that do not answer.
func TestRejected(t *testing.T) {
	knows := func(server string) refusals {
		return refusals{lately: func(q *counter.RecentQuery) []router.Refused {
			return []router.Refused{{Tenant: q.Tenant, ID: server, At: time.Unix(5, 7), Error: "value: is missing"}}
		}}
	}
	asker := knows("own")
	asker.others = func() []string { return []string{"silent", "damaged", "other"} }
	asker.call = func(ctx context.Context, server, method string, req []byte) ([]byte, error) {
		switch {
		case method != methodRejected || server == "silent":
			return nil, errors.New("it does not answer")
		case server == "damaged":
			return []byte("{"), nil
		}
		return knows(server).serveList(ctx, req)
	}
	list, silent := asker.list(t.Context(), counter.RecentQuery{Tenant: "acme"})
	if len(list) != 2 || list[0].ID != "own" || list[1].ID != "other" || list[1].Tenant != "acme" ||
		!list[1].At.Equal(time.Unix(5, 7)) {
		t.Errorf("%+v", list)
	}
	if len(silent) != 2 || silent[0] != "silent: it does not answer" {
		t.Errorf("%q", silent)
	}
	if _, err := asker.serveList(t.Context(), []byte{9}); err == nil {
		t.Error("a damaged question was answered")
	}
}
