package grants

import (
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// TestOneTime: a one-time secret is traded once, within its time, and only while its token lives.
func TestOneTime(t *testing.T) {
	h := newWorld(t, nil)
	ctx := t.Context()
	token, err := h.keeper.CreateToken(ctx, TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.keeper.OneTime(ctx, "unknown"); !errkind.Is(err, errkind.Denied) {
		t.Errorf("for a token that is not there: %v", err)
	}
	secret, once, err := h.keeper.OneTime(ctx, token.SecretID)
	if err != nil || once.AccessorID != token.AccessorID || once.CreateIndex == 0 {
		t.Fatalf("%+v %v", once, err)
	}
	if got, err := h.keeper.Exchange(ctx, secret); err != nil || got.SecretID != token.SecretID {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := h.keeper.Exchange(ctx, secret); !errkind.Is(err, errkind.Denied) {
		t.Errorf("traded twice: %v", err)
	}
	late, _, err := h.keeper.OneTime(ctx, token.SecretID)
	if err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(oneTimeLife)
	if _, err := h.keeper.Exchange(ctx, late); !errkind.Is(err, errkind.Denied) {
		t.Errorf("too late: %v", err)
	}
	fresh, _, err := h.keeper.OneTime(ctx, token.SecretID)
	if err != nil {
		t.Fatal(err)
	}
	if next, err := h.keeper.Sweep(ctx); err != nil || next.Sub(h.clock.Now()).Round(time.Second) != oneTimeLife {
		t.Errorf("the sweep comes again at %v, %v", next, err)
	}
	left := 0
	for range h.keeper.cfg.Store.State().Records(catalog.RecordOneTime, "") {
		left++
	}
	if left != 1 {
		t.Errorf("%d one-time secrets are left", left)
	}
	if err := h.keeper.DeleteToken(ctx, token.AccessorID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.keeper.Exchange(ctx, fresh); !errkind.Is(err, errkind.Denied) {
		t.Errorf("for a token that was revoked: %v", err)
	}
}
