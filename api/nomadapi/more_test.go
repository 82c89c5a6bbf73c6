package nomadapi

import (
	"strings"
	"testing"
)

// TestMoreRows: what autoscalers and operators ask beside jobs and nodes.
func TestMoreRows(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", "/v1/scaling/policies", "", 200, `"ID":"` + policyID + `"`},
		{"GET", "/v1/scaling/policies?job=none", "", 200, `[]`},
		{"GET", "/v1/scaling/policy/" + policyID, "", 200, `"Namespace":"default","Min":1,"Max":4,"Policy":{"cooldown":`},
		{"GET", "/v1/scaling/policy/" + noID, "", 404, "policy not found"},
		{"GET", "/v1/volumes?type=csi", "", 200, `[]`},
		{"GET", "/v1/plugins?type=csi", "", 200, `[]`},
		{"GET", "/v1/volume/csi/x", "", 404, "volume not found"},
		{"GET", "/v1/plugin/csi/x", "", 404, "plugin not found"},
		{"DELETE", "/v1/evaluations", `{"EvalIDs":["` + evalID + `"]}`, 400, "must be paused"},
		{"GET", "/v1/agent/monitor?plain=true&log_level=warn&log_json=true", "", 200, "level WARN, json true\n"},
		{"GET", "/v1/agent/monitor", "", 200, `{"Data":"bGV2ZWwg`},
		{"GET", "/v1/agent/monitor?log_level=loud", "", 400, "Unknown log level: loud"},
		{"GET", "/v1/agent/monitor?node_id=" + noID, "", 200, ""},
		{"GET", "/v1/agent/monitor?node_id=near", "", 400, `node_id: "near" is no id`},
		{"GET", "/v1/agent/monitor?server_id=elsewhere", "", 400, `there is no server "elsewhere"`},
		{"GET", "/v1/agent/monitor?server_id=b&plain=true&log_level=error", "", 200, "log of b ERROR"},
		{"GET", "/v1/agent/monitor?server_id=b.global", "", 200, `{"Data":"bG9nIG9m`},
		{"GET", "/v1/agent/monitor?server_id=leader&plain=true", "", 200, "level INFO"},
		{"GET", "/v1/agent/monitor?server_id=b&node_id=" + noID, "", 400, "simultaneously"},
		{"GET", "/v1/client/metadata", "", 400, "node_id"},
		{"GET", "/v1/client/metadata?node_id=x", "", 500, "Unknown node"},
		{"GET", "/v1/client/metadata?node_id=" + nodeID, "", 200, `{"asked":{"Change":false,"Set":null,"Unset":null}}`},
		{"PUT", "/v1/client/metadata", `{"NodeID":"` + nodeID + `","Meta":{"a":"b","c":null}}`, 200,
			`{"asked":{"Change":true,"Set":{"a":"b"},"Unset":["c"]}}`},
		{"POST", "/v1/client/metadata?node_id=" + nodeID, `{"Meta":{"a":""}}`, 200, `"Set":{"a":""}`},
		{"POST", "/v1/client/metadata?node_id=" + nodeID, `{"Meta":{}}`, 400, "missing required Meta"},
		{"POST", "/v1/client/metadata?node_id=" + nodeID, `{"Meta":{"a":1}}`, 400, "cannot unmarshal number"},
		{"GET", "/v1/operator/snapshot", "", 200, "archive, stale false"},
		{"GET", "/v1/operator/snapshot?stale", "", 200, "archive, stale true"},
		{"PUT", "/v1/operator/snapshot", "whole", 200, ""},
		{"POST", "/v1/operator/snapshot", "half", 400, "failed to restore: it is damaged"},
		{"DELETE", "/v1/evaluations", `{}`, 400, "by either ID or filter"},
	} {
		w := call(filled().api(), c.method, c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s %s: %d %.300q, want %d with %q", c.method, c.path, w.Code, w.Body, c.status, c.has)
		}
	}
	h := call(filled().api(), "GET", "/v1/operator/snapshot", "").Header() // by which clients know that they have all
	if h.Get("Digest") != "sha-256=t/bsFPNvUwOV4QxQU1XvuNk6rC368FU57Ye9U7chd8o=" || h.Get("Content-Length") != "20" {
		t.Errorf("the head of a snapshot: %v", h)
	}
	if h := call(filled().api(), "PUT", "/v1/operator/snapshot", "whole").Header(); h.Get("X-Nomad-Index") != "77" {
		t.Errorf("the head after a restore: %v", h)
	}
}
