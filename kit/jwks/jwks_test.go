package jwks_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/kit/polltest"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func parse(t testing.TB, text string) *jwks.Token {
	t.Helper()
	tok, err := jwks.Parse(text, jwks.Asymmetric)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestKeysOfASource(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256", "EdDSA"} {
		i, now := jwkstest.New(t, alg), begin
		keys := jwks.New(func() time.Time { return now })
		for _, from := range []jwks.Source{{URL: i.URL + "/keys", CA: i.CA}, {Discovery: i.URL, DiscoveryCA: i.CA}} {
			i.Asked.Store(0)
			c, issuer, err := keys.Verify(t.Context(), from, parse(t, i.Sign(map[string]any{"sub": "me", "n": 7})))
			if err != nil || c.Subject != "me" || (from.Discovery != "" && issuer != i.URL) {
				t.Fatalf("%s: %+v, %q, %v", alg, c, issuer, err)
			}
			i.Rotate(alg + from.URL)
			next := parse(t, i.Sign(map[string]any{"sub": "me"}))
			if _, _, err := keys.Verify(t.Context(), from, next); !errkind.Is(err, errkind.Denied) || i.Asked.Load() != 1 {
				t.Errorf("%s: unknown keys may not make us ask all the time: %v, asked %d times", alg, err, i.Asked.Load())
			}
			now = now.Add(10 * time.Second)
			if _, _, err := keys.Verify(t.Context(), from, next); err != nil || i.Asked.Load() != 2 {
				t.Errorf("%s: a new key is not looked up: %v", alg, err)
			}
		}
	}
}

// Those who need the same keys share one question, also when who asked first went away.
func TestOneQuestion(t *testing.T) {
	i := jwkstest.New(t, "ES256")
	i.Hold = make(chan struct{})
	keys := jwks.New(func() time.Time { return begin })
	from := jwks.Source{URL: i.URL + "/keys", CA: i.CA}
	tok := parse(t, i.Sign(map[string]any{"sub": "me"}))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			use := t.Context()
			if n == 0 {
				use = ctx
			}
			if _, _, err := keys.Verify(use, from, tok); err != nil && n > 0 {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	polltest.Until(t, func() bool { return i.Asked.Load() > 0 }, "the first question")
	cancel()
	close(i.Hold)
	wg.Wait()
	if n := i.Asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestForgedTokens(t *testing.T) {
	i, other := jwkstest.New(t, "ES256"), jwkstest.New(t, "ES256")
	key, err := jwks.PublicKey(i.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	good := i.Sign(map[string]any{"sub": "me"})
	parts := strings.Split(good, ".")
	for name, text := range map[string]string{
		"another's":    other.Sign(map[string]any{"sub": "me"}),
		"none":         "eyJhbGciOiJub25lIn0." + parts[1] + ".",
		"HS256":        "eyJhbGciOiJIUzI1NiJ9." + parts[1] + "." + parts[2],
		"other claims": parts[0] + "." + strings.Split(other.Sign(map[string]any{"sub": "you"}), ".")[1] + "." + parts[2],
		"empty":        "", "long": strings.Repeat("x", jwks.MaxBytes+1),
	} {
		tok, err := jwks.Parse(text, jwks.Asymmetric)
		if err == nil {
			_, err = tok.SignedBy([]any{key})
		}
		if !errkind.Is(err, errkind.Denied) && !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := jwks.Parse(good, []jwks.Algorithm{"RS256"}); !errkind.Is(err, errkind.Denied) {
		t.Errorf("an algorithm that was not asked for: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(_ *testing.T, text string) {
		if tok, err := jwks.Parse(text, jwks.Asymmetric); err == nil {
			_, _ = tok.Unchecked()
		}
	})
}
