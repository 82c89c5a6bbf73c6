package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/polltest"
)

// Watches of what an agent answers by itself, on a whole process.
func TestWatchesOfTheAgent(t *testing.T) {
	dir := t.TempDir()
	to := func(name string) string {
		return fmt.Sprintf("args = [\"/bin/sh\", \"-c\", \"cat >>%s/%s\"]", dir, name)
	}
	m := startServer(t, "w1", aclOff+`bootstrap = true
watches = [
  { type = "connect_roots" `+to("roots")+` },
  { type = "connect_leaf" service = "web" `+to("leaf")+` },
  { type = "agent_service" service_id = "web" `+to("service")+` },
]`)
	said := func(name string, parts ...string) {
		t.Helper()
		polltest.Until(t, func() bool {
			text, _ := os.ReadFile(filepath.Join(dir, name)) // not there yet is empty
			for _, part := range parts {
				_, after, ok := strings.Cut(string(text), part)
				if !ok {
					return false
				}
				text = []byte(after)
			}
			return true
		}, "%s to say %q", name, parts)
	}
	m.awaitAsk("PUT", "/v1/agent/service/register", `{"Name":"web","Port":80}`, 200, "")
	said("service", `"Port":80`)
	first, leaf := rootsOf(t, m), leafOf(t, m, "web")
	said("roots", first.ActiveRootID)
	said("leaf", leaf.SerialNumber)
	m.awaitAsk("PUT", "/v1/agent/service/register", `{"Name":"web","Port":81}`, 200, "")
	said("service", `"Port":80`, `"Port":81`)
	m.awaitAsk("PUT", "/v1/connect/ca/configuration", `{"Provider":"consul","Config":{"PrivateKeyBits":384}}`, 200, "")
	said("roots", first.ActiveRootID, rootsOf(t, m).ActiveRootID)
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}
