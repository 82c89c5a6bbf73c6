package spool

import (
	"testing"

	"corbel.dev/corbel/kit/pack"
)

// TestUploadNeedsAName: pieces go where a judged head made room, and nowhere else.
func TestUploadNeedsAName(t *testing.T) {
	u := &Bodies{}
	t.Cleanup(u.Close)
	if _, err := u.Piece(t.Context(), pack.Bytes(pack.Uint(pack.String(nil, "made-up"), 0), []byte("x"))); err == nil ||
		len(u.parts) != 0 {
		t.Errorf("a name that nobody gave: %v", err)
	}
	id, err := u.Begin(Owner{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Piece(t.Context(), pack.Bytes(pack.Uint(pack.String(nil, id), 0), []byte("x"))); err != nil {
		t.Error(err)
	}
}
