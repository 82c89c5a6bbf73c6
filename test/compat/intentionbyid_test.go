//lint:file-ignore SA1019 these calls are deprecated, and older clients make them
package compat

import (
	"testing"

	"github.com/hashicorp/consul/api"
)

// TestIntentionsByID are the calls that the client calls deprecated and old tools still make.
func TestIntentionsByID(t *testing.T) {
	c := consul(t).Connect()
	id, _, err := c.IntentionCreate(&api.Intention{SourceName: "byid-web", DestinationName: "byid-db",
		Action: api.IntentionActionAllow}, nil)
	must(t, err)
	got, _, err := c.IntentionGet(id, nil)
	must(t, err)
	if got.ID != id || got.SourceName != "byid-web" || got.Action != api.IntentionActionAllow || got.Precedence != 9 {
		t.Errorf("created %+v", got)
	}
	got.Action = api.IntentionActionDeny
	_, err = c.IntentionUpdate(got, nil)
	must(t, err)
	exact, _, err := c.IntentionGetExact("byid-web", "byid-db", nil)
	must(t, err)
	if exact.ID != id || exact.Action != api.IntentionActionDeny {
		t.Errorf("updated %+v", exact)
	}
	_, err = c.IntentionDelete(id, nil)
	must(t, err)
	if got, _, err := c.IntentionGet(id, nil); err != nil || got != nil {
		t.Errorf("deleted: %+v, %v", got, err)
	}
}
