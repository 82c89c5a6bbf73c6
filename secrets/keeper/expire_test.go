package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/token"
)

func (h *house) expire() int {
	h.t.Helper()
	n, err := h.tokens.Expire(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// alive reports whether a token's record is there, expired or not.
func (h *house) alive(id string) bool {
	h.t.Helper()
	st := h.gate.Load()
	tok, err := st.Book.Find(h.t.Context(), st.Book.Hash(id))
	if err != nil {
		h.t.Fatal(err)
	}
	return tok != nil
}

// modelled is a token as the test knows it.
type modelled struct {
	id      string
	expires time.Time
	parent  *modelled
	ended   bool
}

// gone reports whether the token, or one above it, has ended by now.
func (m *modelled) gone(now time.Time) bool {
	return m != nil && (m.ended || !now.Before(m.expires) || m.parent.gone(now))
}

// Nothing that ended stays, nothing that lives goes, and in the end nothing is left, whatever was made, renewed and
// revoked.
func TestExpiryAgainstAModel(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/policy/maker", `{"policy":"path \"auth/token/create\" { capabilities = [\"update\"] } `+
		`path \"cubbyhole/*\" { capabilities = [\"create\", \"update\"] } path \"auth/token/renew-self\" { capabilities = `+
		`[\"update\"] }"}`)
	before := h.keysBelow("sys/token/")
	// the first one found a child stored again in the commit that ended its parent
	for _, seed := range []uint64{5946973253435920471, rand.Uint64()} {
		h.modelRound(seed)
	}
	if after := h.keysBelow("sys/token/"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("left of the tokens: %q, before there were %q", after, before)
	}
}

// modelRound does random things from a seed, and ends with nothing left.
func (h *house) modelRound(seed uint64) {
	t := h.t
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var list []*modelled
	for step := range 400 {
		var one *modelled
		if len(list) > 0 {
			one = list[random.IntN(len(list))]
		}
		switch live := one != nil && !one.gone(h.now); random.IntN(8) {
		case 0, 1, 2: // make one, below another where that lives
			ttl := time.Duration(1+random.IntN(100)) * time.Minute
			by, m := h.root, &modelled{expires: h.now.Add(ttl)}
			if live {
				by, m.parent = one.id, one
			}
			r, err := h.as(by, secrets.Update, "auth/token/create", fmt.Sprintf(`{"policies":["maker"],"ttl":"%v"}`, ttl))
			if err != nil {
				t.Fatal(err)
			}
			m.id = r.Token.ID
			list = append(list, m)
		case 3: // renew, to longer or shorter
			if live {
				ttl := time.Duration(1+random.IntN(200)) * time.Minute
				r, err := h.as(one.id, secrets.Update, "auth/token/renew-self", fmt.Sprintf(`{"increment":"%v"}`, ttl))
				if err != nil {
					t.Fatal(err)
				}
				one.expires = h.now.Add(r.Token.Left)
			}
		case 4:
			if live {
				h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+one.id+`"}`)
				one.ended = true
			}
		case 5:
			if live {
				if _, err := h.as(one.id, secrets.Update, "cubbyhole/x", `{"a":1}`); err != nil {
					t.Fatal(err)
				}
			}
		default:
			h.wait(time.Duration(random.IntN(10)) * time.Minute)
		}
		if step%10 == 9 {
			h.expire()
			for _, m := range list {
				if m.gone(h.now) {
					m.ended = true
				}
				if h.alive(m.id) == m.ended {
					t.Fatalf("step %d: a token that ends at %v is there: %v, at %v", step, m.expires, h.alive(m.id), h.now)
				}
			}
		}
	}
	h.wait(300 * time.Hour)
	h.expire()
	if left := h.keysBelow("sys/expire/"); len(left) != 0 {
		t.Errorf("left in the index: %q", left)
	}
	if left := h.keysBelow(h.gate.Load().Mounts.Get("cubbyhole/").Prefix()); len(left) != 0 {
		t.Errorf("left in cubbyholes: %q", left)
	}
}

// What is damaged is named and skipped; what is beside it goes all the same, over several batches.
func TestExpirySkipsWhatIsDamaged(t *testing.T) {
	h := newHouse(t)
	var log strings.Builder
	h.records.Log = slog.New(slog.NewTextHandler(&log, nil))
	var ids []string
	for range 2*256 + 10 {
		ids = append(ids, h.token(`{"ttl":"1h"}`))
	}
	st := h.gate.Load()
	find := func(prefix, hash string) string {
		for _, key := range h.keysBelow(prefix) {
			if strings.HasSuffix(key, hash) {
				return key
			}
		}
		t.Fatalf("no record of %s below %s", hash, prefix)
		return ""
	}
	badEntry := find(token.DuePrefix, st.Book.Hash(ids[5]))
	badToken := find("sys/token/id/", st.Book.Hash(ids[5]))
	damage := []storage.Op{storage.Put(token.DuePrefix+"0/nonsense", nil),
		storage.Put(badToken, []byte("nonsense of some length, that opens with no key"))}
	if err := h.store.Commit(t.Context(), h.records.Epoch(), damage); err != nil {
		t.Fatal(err)
	}
	h.records.Forget()
	h.rights.Forget()
	h.wait(2 * time.Hour)
	h.expire()
	h.expire()
	for i, id := range ids {
		if i != 5 && h.alive(id) {
			t.Errorf("token %d is still there", i)
		}
	}
	if got := log.String(); strings.Count(got, "key="+badEntry) != 1 || strings.Count(got, "skipped") != 1 {
		t.Errorf("what was told: %s", got)
	}
}

// A new start has the index as it was, and Run ends with its context.
func TestExpiryAfterASeal(t *testing.T) {
	h := newHouse(t)
	id := h.token(`{"ttl":"1h"}`)
	h.Seal()
	h.wait(time.Hour)
	if n := h.expire(); n != 0 {
		t.Errorf("%d were dealt with while sealed", n)
	}
	h.unseal()
	if n := h.expire(); n != 1 || h.alive(id) {
		t.Errorf("after the unseal: %d", n)
	}
	k, err := newKeeper(Config{Storage: memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(done); k.Run(ctx) }()
	cancel()
	<-done
}
