package node

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
)

// takeAll takes what is left of a budget, but for some bytes, until the test ends or give is called.
func takeAll(t *testing.T, b *limit.Bytes, leave int64) (give func()) {
	t.Helper()
	polltest.Until(t, func() bool { return b.Stats().Used == 0 }, "nothing to be held")
	hold := b.Hold(netip.Addr{})
	if err := hold.Add(b.Stats().Most - leave); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hold.End)
	return hold.End
}

// TestForwardedBodiesAreRefusedAsTheirOwn: where the server that an agent forwards to has no room, its client reads
// 503 and when to come back, at once.
func TestForwardedBodiesAreRefusedAsTheirOwn(t *testing.T) {
	first := startServer(t, "bytes1", "bootstrap = true\nacl { enabled = false }\nlimits { request_memory = 4194304 }")
	agent := startMember(t, false, "bytesagent", fmt.Sprintf("acl { enabled = false }\nretry_join = [%q]", first.gossip))
	raw := make([]byte, 300<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(raw) // answers are compressed where that helps
	large := string(raw)
	agent.awaitAsk("PUT", "/v1/kv/a", large, 200, "true")
	give := takeAll(t, first.bytes, 1000)
	for _, m := range []*testMember{first, agent} {
		code, text, head := m.answer("PUT", "/v1/kv/a", large)
		if code != 503 || head.Get("Retry-After") != "1" || !strings.Contains(text, "limits.request_memory") {
			t.Errorf("at %s: %d %s, Retry-After %q", m.http, code, text, head.Get("Retry-After"))
		}
	}
	if code, text := agent.ask("PUT", "/v1/kv/small", "x"); code != 200 {
		t.Errorf("a small one: %d %s", code, text)
	}
	give()
	if code, text := agent.ask("PUT", "/v1/kv/a", large); code != 200 {
		t.Errorf("afterwards: %d %s", code, text)
	}
	takeAll(t, agent.bytes, 1000)
	if code, text, head := agent.answer("GET", "/v1/kv/a?raw", ""); code != 503 || head.Get("Retry-After") != "1" {
		t.Errorf("an answer that the agent has no room for: %d %.80s", code, text)
	}
}

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
	give := takeAll(t, a.srv.bytes, 1000)
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
