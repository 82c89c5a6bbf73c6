package node

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	meshplane "corbel.dev/corbel/node/planes/mesh"
)

// An agent hears of the mesh over its one connection to a server, two when hedged.
func TestAgentsAreFed(t *testing.T) {
	t.Parallel()
	first := startServer(t, "feed1", aclOff+`bootstrap = true`)
	startServer(t, "feed2", aclOff+fmt.Sprintf("retry_join = [%q]", first.gossip))
	var heard [2]newest
	for i, more := range []string{"", "\nconnect { hedge = true }"} {
		a := startMember(t, false, fmt.Sprint("feedagent", i), aclOff+fmt.Sprintf("retry_join = [%q]", first.gossip)+more)
		client := a.mesh.Source.(*meshplane.Client).Feed
		t.Cleanup(client.Follow("endpoints/dc1/web/", "", heard[i].set, func(err error) { t.Error(err) }))
		polltest.Within(t, 2*time.Minute, func() bool {
			return len(client.Connected()) == i+1 && client.Newest() > 0 &&
				!client.Stale()
		},
			"agent %d to hear from %d servers", i, i+1)
	}
	for port := range 3 {
		addr := fmt.Sprint("10.9.9.", port)
		first.awaitAsk("PUT", "/v1/catalog/register", fmt.Sprintf(`{"Node":"n%d","Address":%q,"Service":{"ID":"p",`+
			`"Service":"web-proxy","Kind":"connect-proxy","Port":1,"Proxy":{"DestinationServiceName":"web"}}}`, port, addr),
			200, "true")
		for i := range heard {
			polltest.Within(t, 2*time.Minute, func() bool { return bytes.Contains(heard[i].get().Body, []byte(addr)) },
				"agent %d to hear of %s", i, addr)
		}
	}
	if first.feeds.Feed.Stats().Conns == 0 {
		t.Error("a server serves nobody")
	}
}
