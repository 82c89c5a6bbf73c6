package node

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/limit/limittest"
)

// TestForwardedBodiesAreRefusedAsTheirOwn: where the server that an agent forwards to has no room, its client reads
// 503 and when to come back, at once.
func TestForwardedBodiesAreRefusedAsTheirOwn(t *testing.T) {
	first := startServer(t, "bytes1", "bootstrap = true\nacl { enabled = false }\nlimits { request_memory = 4194304 }")
	agent := startMember(t, false, "bytesagent", fmt.Sprintf("acl { enabled = false }\nretry_join = [%q]", first.gossip))
	raw := make([]byte, 300<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(raw) // answers are compressed where that helps
	large := string(raw)
	agent.awaitAsk("PUT", "/v1/kv/a", large, 200, "true")
	give := limittest.TakeAll(t, first.Ports.Bytes, 1000)
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
	limittest.TakeAll(t, agent.Ports.Bytes, 1000)
	if code, text, head := agent.answer("GET", "/v1/kv/a?raw", ""); code != 503 || head.Get("Retry-After") != "1" {
		t.Errorf("an answer that the agent has no room for: %d %.80s", code, text)
	}
}
