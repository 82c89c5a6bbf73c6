package node

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/archive"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
)

// golden is an archive that the first version of the format wrote. It is never written anew: later versions must read
// it.
const golden = "testdata/snapshot-v1.tgz"

var writeGolden = flag.Bool("golden", false, "write the archive of a new version of the format, when there is none")

func fillForSnapshot(s *testMember) {
	s.t.Helper()
	for i := range 3 {
		s.awaitAsk("PUT", fmt.Sprintf("/v1/kv/app/%d/word", i), "value", http.StatusOK, "true")
	}
	s.awaitAsk("PUT", "/v1/kv/other", "value", http.StatusOK, "true")
	s.awaitAsk("PUT", "/v1/catalog/register", `{"Node":"n1","Address":"10.0.0.1","Service":{"Service":"web","Port":80},`+
		`"Check":{"CheckID":"c","Name":"c","Status":"passing","ServiceID":"web"}}`, 200, "true")
	s.awaitAsk("PUT", "/v1/session/create", `{"Node":"n1","Checks":[],"NodeChecks":[]}`, 200, "ID")
	s.awaitAsk("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"web","Protocol":"http"}`, 200, "true")
	s.awaitAsk("POST", "/v1/query", `{"Name":"q","Service":{"Service":"web"}}`, 200, "ID")
	s.awaitAsk("PUT", "/v1/acl/policy", `{"Name":"p","Rules":"key_prefix \"\" { policy = \"read\" }"}`, 200, "ID")
}

// TestSnapshotsOfTheFirstVersionAreRead: what was saved once is restored for ever, and its parts are counted.
func TestSnapshotsOfTheFirstVersionAreRead(t *testing.T) {
	s := startServer(t, "s0", openACLs)
	s.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	if *writeGolden {
		fillForSnapshot(s)
		_, text := s.ask("GET", "/v1/snapshot", "")
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	saved, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	counts, keys := inspected(t, saved)
	for name, least := range map[string]int{"KVS": 4, "Node": 1, "Service": 1, "Check": 1, "Session": 1, "ConfigEntry": 1,
		"PreparedQuery": 1, "ACLPolicy": 1, "ACLToken": 1} {
		if counts[name] < least {
			t.Errorf("%d of %s, want %d", counts[name], name, least)
		}
	}
	if !strings.Contains(strings.Join(keys, " "), "app/0/word app/1/word app/2/word other") {
		t.Errorf("the keys are %q", keys)
	}
	s.awaitAsk("DELETE", "/v1/kv/?recurse", "", http.StatusOK, "true")
	s.awaitAsk("PUT", "/v1/snapshot", string(saved), http.StatusOK, "")
	s.awaitAsk("GET", "/v1/kv/app/1/word?raw", "", http.StatusOK, "value")
	s.awaitAsk("GET", "/v1/catalog/service/web", "", http.StatusOK, "10.0.0.1")
	s.awaitAsk("GET", "/v1/config/service-defaults/web", "", http.StatusOK, "http")
	if want, got := stateOf(t, saved), s.registry.State(); got.KV("other").ModifyIndex != want.KV("other").ModifyIndex ||
		got.Index() < want.Index() {
		t.Errorf("restored at index %d, saved at %d", got.Index(), want.Index())
	}
}

func inspected(t *testing.T, saved []byte) (counts map[string]int, keys []string) {
	t.Helper()
	var state bytes.Buffer
	if _, err := archive.Read(bytes.NewReader(saved), &state, 1<<30); err != nil {
		t.Fatal(err)
	}
	all, err := catalogplane.InspectSnapshot(&state, func(key string, size int) {
		if size <= len(key) {
			t.Errorf("%s has %d bytes", key, size)
		}
		keys = append(keys, key)
	})
	if err != nil {
		t.Fatal(err)
	}
	counts = map[string]int{}
	for _, one := range all {
		counts[one.Name] = one.Count
	}
	return counts, keys
}

func stateOf(t *testing.T, saved []byte) (st *statestore.State) {
	t.Helper()
	var raw bytes.Buffer
	_, err := archive.Read(bytes.NewReader(saved), &raw, 1<<30)
	if err == nil {
		err = snapshot.Read(&raw, func(r io.Reader) (err error) {
			st, err = statestore.ReadState(r)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}
