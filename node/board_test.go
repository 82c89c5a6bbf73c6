package node

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh"
)

// newest keeps the last value of a subject.
type newest struct {
	mu sync.Mutex
	v  feed.Value
}

func (n *newest) set(v feed.Value) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.v = v
}

func (n *newest) get() feed.Value {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.v
}

// What is written through the API reaches those who follow the server's snapshot cache.
func TestSnapshotsTellWhatIsWritten(t *testing.T) {
	m := startServer(t, "board1", aclOff+`bootstrap = true
default_intention_policy = "deny"`)
	values := map[string]*newest{}
	for _, subject := range []string{"endpoints/dc1/web/", "service/web", "rules/web", "roots"} {
		n := &newest{}
		stop, err := m.feeds.Snapshots.Follow(feed.Identity{Node: "x"}, subject, n.set, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		values[subject] = n
	}
	await := func(subject string, holds func(body []byte) bool) {
		t.Helper()
		polltest.Within(t, time.Minute, func() bool { return holds(values[subject].get().Body) }, "%s", subject)
	}
	await("roots", func(b []byte) bool {
		v, err := mesh.ReadRoots(b)
		return err == nil && len(v.List) == 1 && v.ActiveID == v.List[0].ID
	})
	m.awaitAsk("PUT", "/v1/catalog/register", `{"Node":"n9","Address":"10.9.9.9","Service":{"ID":"web-proxy",`+
		`"Service":"web-proxy","Kind":"connect-proxy","Port":21000,"Proxy":{"DestinationServiceName":"web"}}}`, 200, "true")
	await("endpoints/dc1/web/", func(b []byte) bool { return bytes.Contains(b, []byte("10.9.9.9")) })
	m.awaitAsk("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"web","Protocol":"http"}`, 200, "true")
	await("service/web", func(b []byte) bool {
		v, err := mesh.ReadService(b)
		return err == nil && v.Protocol == "http"
	})
	before := values["rules/web"].get().Body
	m.awaitAsk("GET", "/v1/connect/intentions/check?source=api&destination=web", "", 200, `"Allowed":false`)
	m.awaitAsk("PUT", "/v1/connect/intentions/exact?source=api&destination=web", `{"Action":"allow"}`, 200, "true")
	await("rules/web", func(b []byte) bool { return !bytes.Equal(b, before) })
	await("service/web", func(b []byte) bool {
		v, err := mesh.ReadService(b)
		return err == nil && v.OwnRules
	})
	if v := values["endpoints/dc1/web/"].get(); v.At.IsZero() || v.Generation == 0 {
		t.Errorf("%+v", v)
	}
}

// A token without rights is refused, and one that is deleted ends what it follows.
func TestSnapshotsKnowRights(t *testing.T) {
	m := startServer(t, "board2", `bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = "5ba5c1c6-ea1a-4a9b-9f6e-2a0fbd4a6e11" } }`)
	const root, web = "5ba5c1c6-ea1a-4a9b-9f6e-2a0fbd4a6e11", "0d9ba1a5-6a4a-4c5a-8a6a-7d1a5a2b0c33"
	m.awaitAsk("PUT", "/v1/acl/token?token="+root, `{"SecretID":"`+web+
		`","AccessorID":"1d9ba1a5-6a4a-4c5a-8a6a-7d1a5a2b0c33","ServiceIdentities":[{"ServiceName":"web"}]}`, 200, web)
	follow := func(token, subject string, denied func(error)) error {
		stop, err := m.feeds.Snapshots.Follow(feed.Identity{Token: token}, subject, func(feed.Value) {},
			denied)
		if err == nil {
			t.Cleanup(stop)
		}
		return err
	}
	ended := make(chan error, 2)
	if err := follow(web, "service/web", func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	for token, subject := range map[string]string{web: "service/api", "": "endpoints/dc1/web/", "nobody": "service/web"} {
		if err := follow(token, subject, nil); errkind.Of(err) != errkind.Denied {
			t.Errorf("%q follows %s: %v", token, subject, err)
		}
	}
	m.awaitAsk("DELETE", "/v1/acl/token/1d9ba1a5-6a4a-4c5a-8a6a-7d1a5a2b0c33?token="+root, "", 200, "true")
	if err := polltest.Get(t, ended, "the end of the right"); errkind.Of(err) != errkind.Denied {
		t.Error(err)
	}
}
