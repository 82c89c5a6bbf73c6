package sealing

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// A store opens with enough of its shares, with new ones alone after a rekey, and makes a root token with them. While
// it is sealed there are no tables.
func TestSharesOpenRekeyAndMakeRoots(t *testing.T) {
	ctx := t.Context()
	records := sealed.New(sealed.Config{Under: memstore.New(), Now: time.Now, CacheBytes: 1 << 20,
		Committed: func([]storage.Op) {}})
	gate := &tables.Gate{Store: records}
	s, rekeys, roots := New(Config{Now: time.Now, Log: slog.New(slog.DiscardHandler), Forget: records.Forget,
		Close: func([]*audit.Device) {},
		Load: func(ctx context.Context) (*tables.Tables, error) {
			salt, _, err := records.Get(ctx, token.SaltKey)
			return &tables.Tables{Book: &token.Book{Reader: records, Salt: salt}}, err
		}}, gate, records)
	first, err := s.Init(ctx, 3, 2, "")
	if err != nil {
		t.Fatal(err)
	}
	unseal := func(shares [][]byte) (SealStatus, error) {
		if _, err := s.Unseal(ctx, shares[0]); err != nil {
			t.Fatal(err)
		}
		return s.Unseal(ctx, shares[2])
	}
	if st, err := unseal(first.Shares); err != nil || st.Sealed || !s.Active() {
		t.Fatalf("unsealed: %+v, %v", st, err)
	}
	st, err := rekeys.StartRekey(ctx, RekeyBarrier, Rekeying{Shares: 3, Threshold: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range first.Shares[:2] {
		if st, err = rekeys.UpdateRekey(ctx, RekeyBarrier, share, st.Nonce); err != nil {
			t.Fatal(err)
		}
	}
	if !st.Complete || len(st.NewShares) != 3 {
		t.Fatalf("rekeyed: %+v", st)
	}
	if s.Seal(); gate.Load() != nil || !s.Sealed() {
		t.Error("there are tables, or keys, while it is sealed")
	}
	if _, err := unseal(first.Shares); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with the former shares: %v", err)
	}
	if _, err := unseal(st.NewShares); err != nil {
		t.Fatal(err)
	}
	root, err := roots.StartGenerateRoot(ctx, "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range st.NewShares[:2] {
		if root, err = roots.UpdateGenerateRoot(ctx, share, root.Nonce); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := records.List(ctx, token.Records, "", 0); !root.Complete || root.Encoded == "" || len(names) != 2 ||
		err != nil {
		t.Errorf("a root token: %+v; there are %v, %v", root, names, err)
	}
	if s.Seal(); s.rekeys.under[RekeyBarrier] != nil || s.roots.rooting != nil {
		t.Error("what was under way outlived the seal")
	}
}

// A server that unseals by itself does so once: what an operator seals stays sealed, also where who unseals at the
// start has not seen yet that somebody was faster.
func TestFirstUnseal(t *testing.T) {
	ctx := t.Context()
	records := sealed.New(sealed.Config{Under: memstore.New(), Now: time.Now, CacheBytes: 1 << 20,
		Committed: func([]storage.Op) {}})
	by, err := seal.NewStatic("one", make([]byte, 32), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	gate := &tables.Gate{Store: records}
	fails := false
	s, _, _ := New(Config{Now: time.Now, Log: slog.New(slog.DiscardHandler), Forget: records.Forget, Auto: by,
		Close: func([]*audit.Device) {},
		Load: func(ctx context.Context) (*tables.Tables, error) {
			if fails {
				return nil, errkind.New(errkind.Unavailable, "the storage is away")
			}
			salt, _, err := records.Get(ctx, token.SaltKey)
			return &tables.Tables{Book: &token.Book{Reader: records, Salt: salt}}, err
		}}, gate, records)
	if done, err := s.FirstUnseal(ctx); done || err != nil {
		t.Errorf("before it is initialized: %t, %v", done, err)
	}
	if _, err := s.InitWith(ctx, &InitConfig{RecoveryShares: 1, RecoveryThreshold: 1}); err != nil {
		t.Fatal(err)
	}
	fails = true
	if done, err := s.FirstUnseal(ctx); done || err == nil || !s.Sealed() {
		t.Errorf("without its storage: %t, %v", done, err)
	}
	fails = false
	if err := s.AutoUnseal(ctx); err != nil || s.Sealed() { // as an initialization ends
		t.Fatalf("by itself: %v", err)
	}
	s.Seal()
	if done, err := s.FirstUnseal(ctx); !done || err != nil || !s.Sealed() {
		t.Errorf("after an operator sealed it: %t, %v, sealed %t", done, err, s.Sealed())
	}
}
