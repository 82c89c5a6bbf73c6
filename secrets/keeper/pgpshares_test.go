package keeper

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/sealing"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// keyOwner is somebody who has a PGP key.
type keyOwner struct {
	t      *testing.T
	entity *openpgp.Entity
	public string // in base64
}

func newKeyOwner(t *testing.T) *keyOwner {
	t.Helper()
	e, err := openpgp.NewEntity("Somebody", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := e.Serialize(&out); err != nil {
		t.Fatal(err)
	}
	return &keyOwner{t, e, base64.StdEncoding.EncodeToString(out.Bytes())}
}

func (p *keyOwner) read(message []byte) string {
	p.t.Helper()
	m, err := openpgp.ReadMessage(bytes.NewReader(message), openpgp.EntityList{p.entity}, nil, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := io.ReadAll(m.UnverifiedBody)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *keyOwner) share(message []byte) []byte {
	p.t.Helper()
	b, err := hex.DecodeString(p.read(message))
	if err != nil {
		p.t.Fatalf("what was encrypted is no share in hexadecimal: %v", err)
	}
	return b
}

// TestPGP: shares, the root token, new shares with their backup and a generated root token come encrypted, and serve.
func TestPGP(t *testing.T) {
	a, b, c := newKeyOwner(t), newKeyOwner(t), newKeyOwner(t)
	h := &house{t: t, store: memstore.New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	if h.Keeper, err = newKeeper(Config{Storage: h.store, Now: func() time.Time { return h.now }}); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []sealing.InitConfig{
		{Shares: 2, Threshold: 2, PGPKeys: []string{a.public}},
		{Shares: 2, Threshold: 2, PGPKeys: []string{a.public, "bm8ga2V5"}},
		{Shares: 1, Threshold: 1, RootPGPKey: "no key"},
		{Shares: 1, Threshold: 1, RecoveryPGPKeys: []string{a.public}},
	} {
		if _, err := h.InitWith(t.Context(), &wrong); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	first, err := h.InitWith(t.Context(), &sealing.InitConfig{Shares: 2, Threshold: 2,
		PGPKeys: []string{a.public, b.public}, RootPGPKey: c.public})
	if err != nil {
		t.Fatal(err)
	}
	for i, who := range []*keyOwner{a, b} {
		if _, err := h.Unseal(t.Context(), who.share(first.Shares[i])); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := base64.StdEncoding.DecodeString(first.RootToken)
	if err != nil {
		t.Fatal(err)
	}
	h.root = c.read(raw)
	h.ok(secrets.Read, "auth/token/lookup-self", "")

	if _, err := h.StartRekey(t.Context(), sealing.RekeyBarrier,
		sealing.Rekeying{Shares: 1, Threshold: 1, Backup: true}); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a backup of plain shares: %v", err)
	}
	st, err := h.StartRekey(t.Context(), sealing.RekeyBarrier,
		sealing.Rekeying{Shares: 1, Threshold: 1, PGPKeys: []string{c.public}, Backup: true})
	print := hex.EncodeToString(c.entity.PrimaryKey.Fingerprint)
	if err != nil || len(st.Fingerprints) != 1 || st.Fingerprints[0] != print || !st.Backup {
		t.Fatalf("%+v, %v", st, err)
	}
	nonce := st.Nonce
	if _, err := h.Backup(t.Context(), sealing.RekeyBarrier); !errkind.Is(err, errkind.NotFound) {
		t.Errorf("a backup before there are shares: %v", err)
	}
	for i, who := range []*keyOwner{a, b} {
		if st, err = h.UpdateRekey(t.Context(), sealing.RekeyBarrier, who.share(first.Shares[i]), nonce); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := h.Backup(t.Context(), sealing.RekeyBarrier)
	if err != nil || !st.Complete || kept.Nonce != nonce || !bytes.Equal(kept.Shares[print][0], st.NewShares[0]) {
		t.Fatalf("%+v, %+v, %v", st, kept, err)
	}
	share := c.share(kept.Shares[print][0])
	if err := h.ForgetBackup(t.Context(), sealing.RekeyBarrier); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Backup(t.Context(), sealing.RekeyBarrier); !errkind.Is(err, errkind.NotFound) {
		t.Errorf("a backup that was forgotten: %v", err)
	}

	if _, err := h.StartGenerateRoot(t.Context(), strings.Repeat("o", len(sealing.NewOTP())), a.public); !errkind.Is(err,
		errkind.Invalid) {
		t.Errorf("a password beside a key: %v", err)
	}
	attempt, err := h.StartGenerateRoot(t.Context(), "", a.public)
	if err != nil || attempt.OTP != "" || attempt.Fingerprint != hex.EncodeToString(a.entity.PrimaryKey.Fingerprint) {
		t.Fatalf("%+v, %v", attempt, err)
	}
	if attempt, err = h.UpdateGenerateRoot(t.Context(), share, attempt.Nonce); err != nil || !attempt.Complete {
		t.Fatalf("%+v, %v", attempt, err)
	}
	if raw, err = base64.StdEncoding.DecodeString(attempt.Encoded); err != nil {
		t.Fatal(err)
	}
	h.root = a.read(raw)
	h.ok(secrets.Read, "auth/token/lookup-self", "")

	h.Seal()
	if after, err := h.Unseal(t.Context(), share); err != nil || after.Sealed {
		t.Errorf("the share of the rekey does not unseal: %+v, %v", after, err)
	}
}
