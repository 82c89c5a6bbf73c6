package secretsplane

import (
	"strings"
	"testing"

	"corbel.dev/corbel/kit/limit/limittest"
)

// TestBodiesHandedOnAreRefusedAsTheirOwn is that for secrets: a standby hands a body on to an active server without
// room. Each time its client reads the answer, though the body was not wanted.
func TestBodiesHandedOnAreRefusedAsTheirOwn(t *testing.T) {
	list, _, root := threeVaults(t, "request_memory = 8388608\n")
	a, b := active(t, list), list[1]
	if a == b {
		b = list[0]
	}
	b.awaitHealth(429)
	a.must(204, "POST", "sys/mounts/secret", root, obj{"type": "kv"})
	large := []byte(`{"x":"` + strings.Repeat("x", 500<<10) + `"}`)
	if code, text, _ := b.raw("PUT", "secret/x", root, large); code != 204 {
		t.Fatalf("with room: %d %s", code, text)
	}
	give := limittest.TakeAll(t, a.srv.admits.Bytes, 1000)
	for range 20 {
		code, text, head := b.raw("PUT", "secret/x", root, large)
		if code != 503 || head.Get("Retry-After") == "" || !strings.Contains(string(text), "try again") {
			t.Fatalf("without room: %d %s, Retry-After %q", code, text, head.Get("Retry-After"))
		}
	}
	give()
	if code, text, _ := b.raw("PUT", "secret/x", root, large); code != 204 {
		t.Errorf("afterwards: %d %s", code, text)
	}
}
