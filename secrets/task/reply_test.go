package task

import (
	"encoding/json"
	"testing"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/mount"
)

// The envelope is one JSON object, and data of some paths of sys/ stands at its top too.
func TestEnvelope(t *testing.T) {
	r := &Reply{Response: &secrets.Response{Data: []byte(`{"a":1}`), Warnings: []string{"<w>"}},
		Mount: &mount.Entry{Type: "system"}}
	for path, top := range map[string]bool{"sys/mounts": true, "sys/policies/acl": false, "secret/mounts": false} {
		var got map[string]any
		if err := json.Unmarshal(r.Envelope(nil, &secrets.Request{ID: "id", Path: path}, true), &got); err != nil {
			t.Fatal(err)
		}
		if _, is := got["a"]; is != top || got["request_id"] != "id" || got["lease_id"] != "" ||
			got["mount_type"] != "system" {
			t.Errorf("%s: %v", path, got)
		}
	}
}
