package consulapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// step is one request and its answer; "*" takes any body.
type step struct {
	method, target, body string
	status               int
	response             string
}

func (r *rig) run(steps []step) {
	r.Helper()
	for _, s := range steps {
		r.want(s.method, s.target, s.body, s.status, s.response)
	}
}

func TestKV(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"GET", "/v1/kv/a", "", 404, ""},
		{"GET", "/v1/kv/?keys", "", 200, "[]"}, // the empty prefix is never missing
		{"GET", "/v1/kv/?recurse", "", 404, ""},
		{"PUT", "/v1/kv/a", "hello", 200, "true"},
		{"GET", "/v1/kv/a", "", 200,
			`[{"LockIndex":0,"Key":"a","Flags":0,"Value":"aGVsbG8=","CreateIndex":2,"ModifyIndex":2}]`},
		{"GET", "/v1/kv/a?raw", "", 200, "hello"},
		{"PUT", "/v1/kv/a?cas=0", "x", 200, "false"},
		{"PUT", "/v1/kv/a?cas=2&flags=42", "x", 200, "true"},
		{"GET", "/v1/kv/a", "", 200, `[{"LockIndex":0,"Key":"a","Flags":42,"Value":"eA==","CreateIndex":2,"ModifyIndex":3}]`},
		{"PUT", "/v1/kv/empty", "", 200, "true"},
		{"GET", "/v1/kv/empty", "", 200,
			`[{"LockIndex":0,"Key":"empty","Flags":0,"Value":null,"CreateIndex":4,"ModifyIndex":4}]`},
		{"PUT", "/v1/kv/d/x", "1", 200, "true"},
		{"PUT", "/v1/kv/d/y/z", "2", 200, "true"},
		{"PUT", "/v1/kv/d/y/w", "2", 200, "true"},
		{"GET", "/v1/kv/d/?keys", "", 200, `["d/x","d/y/w","d/y/z"]`},
		{"GET", "/v1/kv/d/?keys&separator=/", "", 200, `["d/x","d/y/"]`},
		{"GET", "/v1/kv/?keys&seperator=/", "", 200, `["a","d/","empty"]`},
		{"GET", "/v1/kv/nothing?keys", "", 404, ""},
		{"GET", "/v1/kv/nothing?recurse", "", 404, ""},
		// by bytes, in their order
		{"GET", "/v1/kv/d/y?recurse", "", 200,
			`[{"LockIndex":0,"Key":"d/y/w","Flags":0,"Value":"Mg==","CreateIndex":7,"ModifyIndex":7},` +
				`{"LockIndex":0,"Key":"d/y/z","Flags":0,"Value":"Mg==","CreateIndex":6,"ModifyIndex":6}]`},
		{"GET", "/v1/kv/", "", 400, "Missing key name"},
		{"PUT", "/v1/kv/", "x", 400, "Missing key name"},
		{"DELETE", "/v1/kv/", "", 400, "Missing key name"},
		{"PUT", "/v1/kv/a?cas=1&acquire=s", "x", 400, "Conflicting flags: cas=1&acquire=s"},
		{"DELETE", "/v1/kv/a?recurse&cas=1", "", 400, "Conflicting flags: recurse&cas=1"},
		{"PUT", "/v1/kv/a?cas=x", "", 400, "*"},
		{"PUT", "/v1/kv/a?flags=-1", "", 400, "*"},
		{"PUT", "/v1/kv/a?acquire=none", "", 500, "*"},
		{"DELETE", "/v1/kv/a?cas=0", "", 200, "false"},
		{"DELETE", "/v1/kv/a?cas=3", "", 200, "true"},
		{"DELETE", "/v1/kv/a?cas=3", "", 200, "true"},
		{"DELETE", "/v1/kv/d/?recurse", "", 200, "true"},
		{"GET", "/v1/kv/d/?keys", "", 404, ""},
		{"PUT", "/v1/kv/big", strings.Repeat("x", 512<<10), 200, "true"},
		{"PUT", "/v1/kv/big", strings.Repeat("x", 512<<10+1), 413, "*"},
		{"POST", "/v1/kv/a", "", 405, "method POST not allowed"},
	})
	raw := r.want("GET", "/v1/kv/empty?raw", "", 200, "")
	if raw.header.Get("Content-Security-Policy") != "sandbox" || raw.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("raw headers: %v", raw.header)
	}
}

func TestLocksOverHTTP(t *testing.T) {
	r := newRig(t, nil)
	r.node("n1")
	created := r.want("PUT", "/v1/session/create", "", 200, "*")
	var s struct{ ID string }
	if err := json.Unmarshal([]byte(created.body), &s); err != nil || s.ID == "" {
		t.Fatalf("create: %s", created.body)
	}
	r.run([]step{
		{"PUT", "/v1/kv/lock?acquire=" + s.ID, "me", 200, "true"},
		{"PUT", "/v1/kv/lock?acquire=" + s.ID, "me", 200, "true"},
		{"GET", "/v1/session/renew/" + s.ID, "", 405, "*"},
		{"PUT", "/v1/session/renew/" + s.ID, "", 200, "*"},
		{"PUT", "/v1/session/renew/none", "", 404, "Session id 'none' not found"},
		{"GET", "/v1/session/info/none", "", 200, "[]"},
		{"GET", "/v1/session/info/" + s.ID, "", 200,
			"[" +
				fmt.Sprintf(`{"ID":"%s","Name":"","Node":"n1","LockDelay":15000000000,"Behavior":"release","TTL":"",`+
					`"NodeChecks":["serfHealth"],"ServiceChecks":null,"CreateIndex":3,"ModifyIndex":3}`, s.ID) + "]"},
		{"PUT", "/v1/kv/lock", "anybody", 200, "true"}, // locks are advisory, and writing keeps them
		{"GET", "/v1/kv/lock", "", 200, `[{"LockIndex":1,"Key":"lock","Flags":0,"Value":"YW55Ym9keQ==","Session":"` + s.ID +
			`","CreateIndex":4,"ModifyIndex":5}]`},
		{"PUT", "/v1/kv/other?acquire=none", "", 500, `invalid session "none"`},
		{"PUT", "/v1/kv/held?acquire=" + s.ID, "", 200, "true"},
		{"DELETE", "/v1/kv/held", "", 200, "true"},
		{"PUT", "/v1/kv/lock?release=" + s.ID, "me", 200, "true"},
		{"PUT", "/v1/kv/lock?release=" + s.ID, "me", 200, "false"},
		{"PUT", "/v1/session/destroy/" + s.ID, "", 200, "true"},
		{"PUT", "/v1/session/destroy/" + s.ID, "", 200, "true"},
		{"GET", "/v1/session/list", "", 200, "[]"},
		{"PUT", "/v1/session/create", `{"Behavior":"x"}`, 500, "Invalid Behavior setting 'x'"},
		// the contract prints nanoseconds
		{"PUT", "/v1/session/create", `{"TTL":"1s"}`, 500, "Invalid Session TTL '1000000000', must be between [10s=24h0m0s]"},
		{"PUT", "/v1/session/create", `{"TTL":"25h"}`, 500,
			"Invalid Session TTL '90000000000000', must be between [10s=24h0m0s]"},
		{"PUT", "/v1/session/create", `{"Node":"unknown"}`, 500, "Missing node registration"},
		{"PUT", "/v1/session/create", `{"LockDelay":"x"}`, 400, "*"},
		{"PUT", "/v1/session/create", `{"LockDelay":5,"TTL":"10s","name":"web"}`, 200, "*"},
	})
	if a := r.do("GET", "/v1/session/list", ""); !strings.Contains(a.body, `"LockDelay":5000000000,`) ||
		!strings.Contains(a.body, `"Name":"web"`) {
		t.Errorf("list: %s", a.body)
	}
}

// readMeta ends the answer of a transaction that only reads.
const readMeta = `,"Index":0,"LastContact":0,"KnownLeader":true,"ConsistencyLevel":"","NotModified":false,"Backend":0}`

func TestTxn(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"a","Value":"aGk=","Flags":7}}]`, 200,
			`{"Results":[{"KV":{"LockIndex":0,"Key":"a","Flags":7,"Value":null,"CreateIndex":2,"ModifyIndex":2}}],"Errors":null}`},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"get","Key":"a"}},{"KV":{"Verb":"get-or-empty","Key":"b"}}]`, 200,
			`{"Results":[{"KV":{"LockIndex":0,"Key":"a","Flags":7,"Value":"aGk=","CreateIndex":2,"ModifyIndex":2}},{"KV":{` +
				`"LockIndex":0,"Key":"b","Flags":0,"Value":null,"CreateIndex":0,"ModifyIndex":0}}],"Errors":null` + readMeta},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"get","Key":"b"}}]`, 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"key \"b\" doesn't exist"}]}`},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"cas","Key":"a","Index":9}}]`, 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"failed to set key \"a\", index is stale"}]}`},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"delete","Key":"a"}}]`, 200, `{"Results":[],"Errors":null}`},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"get","Key":"a"}},{"KV":{"Verb":"nope","Key":"a"}}]`, 409,
			`{"Results":null,"Errors":[{"OpIndex":1,"What":"unknown KV verb \"nope\""}]}`},
		{"PUT", "/v1/txn", `[{"Node":{"Verb":"nope","Node":{"Node":"x"}}}]`, 409, "*"},
		{"PUT", "/v1/txn", `[{"Service":{"Verb":"set","Node":"x","Service":{"ID":"s"}}}]`, 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"Must provide service name"}]}`},
		{"PUT", "/v1/txn", `[{}]`, 200, `{"Results":[],"Errors":null}`},
		{"PUT", "/v1/txn",
			`[{"Node":{"Verb":"set","Node":{"Node":"x","Address":"1.2.3.4"}}},{"Service":{"Verb":"set","Node":"x","Service":{` +
				`"ID":"s","Service":"s","Port":1}}}]`, 200, "*"},
		{"PUT", "/v1/txn", `[{"Node":{"Verb":"get","Node":{"Node":"x"}}}]`, 200,
			`{"Results":[{"Node":{"ID":"","Node":"x","Address":"1.2.3.4","Datacenter":"dc1","TaggedAddresses":null,` +
				`"Meta":null,"CreateIndex":4,"ModifyIndex":4}}],"Errors":null` + readMeta},
		{"PUT", "/v1/txn", `[{"Node":{"Verb":"cas","Node":{"Node":"x","Address":"5.6.7.8","ModifyIndex":3}}}]`, 409, "*"},
		{"PUT", "/v1/txn",
			`[{"Node":{"Verb":"cas","Node":{"Node":"x","Address":"5.6.7.8","ModifyIndex":4}}},{"Service":{"Verb":"delete-cas","Node":"x","Service":{"ID":"s","ModifyIndex":4}}},
			{"Check":{"Verb":"set","Check":{"Node":"x","CheckID":"c","Name":"c","Status":"warning"}}}]`, 200, "*"},
		{"GET", "/v1/health/node/x?filter=Status==warning", "", 200, "*"},
		{"GET", "/v1/catalog/service/s", "", 200, "[]"},
		{"PUT", "/v1/txn",
			`[{"Check":{"Verb":"delete","Check":{"Node":"x","CheckID":"c"}}},{"Node":{"Verb":"delete","Node":{"Node":"x"}}}]`,
			200, "*"},
		{"GET", "/v1/catalog/node/x", "", 200, "null"},
		{"PUT", "/v1/txn", "[" + strings.Repeat(`{"KV":{"Verb":"get","Key":"a"}},`, 128) + `{"KV":{"Verb":"get","Key":"a"}}]`,
			413, "Transaction contains too many operations (129 > 128)"},
		{"PUT", "/v1/txn", "{", 400, "*"},
	})
	before := r.store.applies
	a := r.want("PUT", "/v1/txn?stale", `[{"KV":{"Verb":"check-not-exists","Key":"a"}}]`, 200,
		`{"Results":[],"Errors":null`+readMeta)
	if r.store.applies != before || a.header.Get("X-Consul-Lastcontact") != "0" ||
		a.header.Get("X-Consul-Knownleader") != "true" {
		t.Errorf("a transaction that reads must not reach the log: %v", a.header)
	}
}

func TestCatalogAndHealth(t *testing.T) {
	r := newRig(t, nil)
	r.node("web1")
	r.run([]step{
		{"PUT", "/v1/catalog/register",
			`{"Node":"web1","Address":"10.0.0.9","Service":{"Service":"web","Tags":["V1"],"Port":80,"Meta":{"env":"prod"}},` +
				`"Check":{"CheckID":"c","Name":"c","ServiceID":"web","Status":"critical"}}`, 200, "true"},
		{"GET", "/v1/catalog/datacenters", "", 200, `["dc1"]`},
		{"GET", "/v1/catalog/services", "", 200, `{"web":["V1"]}`},
		{"GET", "/v1/catalog/nodes", "", 200,
			`[{"ID":"","Node":"web1","Address":"10.0.0.9","Datacenter":"dc1","TaggedAddresses":null,"Meta":null,` +
				`"CreateIndex":2,"ModifyIndex":2}]`},
		{"GET", "/v1/catalog/service/none", "", 200, "[]"},
		{"GET", "/v1/catalog/service/web?tag=v1", "", 200,
			`[{"ID":"","Node":"web1","Address":"10.0.0.9","Datacenter":"dc1","TaggedAddresses":null,"NodeMeta":null,` +
				`"ServiceKind":"","ServiceID":"web","ServiceName":"web","ServiceTags":["V1"],"ServiceAddress":"",` +
				`"ServiceWeights":{"Passing":1,"Warning":1},"ServiceMeta":{"env":"prod"},"ServicePort":80,` +
				`"ServiceSocketPath":"","ServiceEnableTagOverride":false,"ServiceProxy":{"Mode":"","MeshGateway":{},"Expose":{` +
				`}},"ServiceConnect":{},"CreateIndex":3,"ModifyIndex":3}]`},
		{"GET", "/v1/catalog/service/web?tag=v2", "", 200, "[]"},
		{"GET", "/v1/catalog/service/", "", 400, "Missing service name"},
		{"GET", "/v1/catalog/node/", "", 400, "Missing node name"},
		{"GET", "/v1/catalog/node/none", "", 200, "null"},
		{"GET", "/v1/catalog/node-services/none", "", 200, `{"Node":null,"Services":[]}`},
		{"GET", "/v1/health/service/web?passing", "", 200, "[]"},
		{"GET", "/v1/health/service/web?passing=false", "", 200, "*"},
		{"GET", "/v1/health/service/web?passing=maybe", "", 400, "Invalid value for ?passing"},
		{"GET", "/v1/health/service/none", "", 200, "[]"},
		{"GET", "/v1/health/state/critical", "", 200, "*"},
		{"GET", "/v1/health/state/odd", "", 200, "[]"},
		{"GET", "/v1/health/state/", "", 400, "Missing check state"},
		{"GET", "/v1/health/checks/none", "", 200, "[]"},
		{"GET", "/v1/health/node/none", "", 200, "[]"},
		{"GET", `/v1/health/service/web?filter=Service.Meta.env+%3D%3D+prod+and+Checks.Status+%3D%3D+critical`, "", 200, "*"},
		{"GET", `/v1/health/service/web?filter=Service.Meta.env+%3D%3D+dev`, "", 200, "[]"},
		{"GET", `/v1/health/service/web?filter=Bogus+%3D%3D+1`, "", 400, "*"},
		{"GET", "/v1/health/service/web?node-meta=rack:1", "", 200, "[]"},
		{"GET", "/v1/health/service/web?dc=dc2", "", 500, "No path to datacenter"},
		{"GET", "/v1/health/service/web?ns=team", "", 400,
			`Invalid query parameter: "ns" - Namespaces are a Consul Enterprise feature`},
		{"GET", "/v1/health/service/web?ns=default&partition=default&dc=dc1", "", 200, "*"},
		{"GET", "/v1/health/service/web?stale&consistent", "", 400,
			"Cannot specify ?stale with ?consistent, conflicting semantics."},
		{"GET", "/v1/health/service/web?index=x", "", 400, "Invalid index"},
		{"GET", "/v1/health/service/web?index=1&wait=x", "", 400, "Invalid wait time"},
		{"PUT", "/v1/catalog/register", `{"Address":"10.0.0.9"}`, 500, "Must provide node"},
		{"PUT", "/v1/catalog/register", `{"Node":"a"}`, 500, "Must provide address if SkipNodeUpdate is not set"},
		{"PUT", "/v1/catalog/register", `{"Node":"a","Address":"b","Service":{}}`, 500,
			"Must provide service name (Service.Service)"},
		{"PUT", "/v1/catalog/deregister", `{"Node":"web1","ServiceID":"web"}`, 200, "true"},
		{"GET", "/v1/catalog/services", "", 200, `{}`},
		{"PUT", "/v1/catalog/deregister", `{"Node":"never"}`, 200, "true"},
		{"PUT", "/v1/catalog/deregister", `{"Node":"web1"}`, 200, "true"},
		{"GET", "/v1/catalog/nodes", "", 200, `[]`},
	})
}

func TestServiceEntryGolden(t *testing.T) {
	r := newRig(t, nil)
	r.node("w")
	r.want("PUT", "/v1/catalog/register",
		`{"Node":"w","Address":"10.0.0.9","Service":{"Service":"web","Port":80,"Proxy":{"destinationservicename":"db"},`+
			`"Kind":"connect-proxy"}}`, 200, "true")
	a := r.want("GET", "/v1/health/connect/db", "", 200, "*")
	want := `[{"Node":{"ID":"","Node":"w","Address":"10.0.0.9","Datacenter":"dc1","TaggedAddresses":null,"Meta":null,` +
		`"CreateIndex":2,"ModifyIndex":2},` +
		`"Service":{"Kind":"connect-proxy","ID":"web","Service":"web","Tags":[],"Address":"","Meta":null,"Port":80,` +
		`"Weights":{"Passing":1,"Warning":1},"EnableTagOverride":false,` +
		`"Proxy":{"DestinationServiceName":"db","Expose":{},"MeshGateway":{},"Mode":""},"Connect":{},"PeerName":"",` +
		`"CreateIndex":3,"ModifyIndex":3},` +
		`"Checks":[{"Node":"w","CheckID":"serfHealth","Name":"Serf Health Status","Status":"passing","Notes":"",` +
		`"Output":"","ServiceID":"","ServiceName":"","ServiceTags":[],"Type":"","Interval":"","Timeout":"",` +
		`"ExposedPort":0,"Definition":{},"CreateIndex":2,"ModifyIndex":2}]}]`
	if a.body != want {
		t.Errorf("got  %s\nwant %s", a.body, want)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "X-Consul-Index": "3",
		"X-Consul-KnownLeader": "true", "X-Consul-LastContact": "0",
		"X-Consul-Effective-Consistency": "leader", "X-Consul-Default-ACL-Policy": "allow",
		"X-Consul-Query-Backend": "blocking-query", "Vary": "Accept-Encoding"} {
		if got := a.header.Get(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

func TestAgentRows(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"GET", "/v1/agent/services", "", 200, "{}"},
		{"GET", "/v1/agent/checks", "", 200, "{}"},
		{"PUT", "/v1/agent/service/register", `{"name":"web","port":80,"tags":["a"],"check":{"ttl":"10s"}}`, 200, ""},
		{"GET", "/v1/agent/services", "", 200,
			`{"web":{"ID":"web","Service":"web","Tags":["a"],"Meta":{},"Port":80,"Address":"","Weights":{"Passing":1,` +
				`"Warning":1},"EnableTagOverride":false,"Datacenter":"dc1"}}`},
		{"GET", "/v1/agent/services?filter=Service+%3D%3D+db", "", 200, `{}`},
		{"GET", "/v1/agent/service/none", "", 404, "unknown service ID: none"},
		{"GET", "/v1/agent/health/service/id/web", "", 503, "*"},
		{"PUT", "/v1/agent/check/pass/service:web?note=fine", "", 200, ""},
		{"GET", "/v1/agent/health/service/id/web?format=text", "", 200, "passing"},
		{"PUT", "/v1/agent/check/warn/service:web", "", 200, ""},
		{"GET", "/v1/agent/health/service/name/web?format=text", "", 429, "warning"},
		{"PUT", "/v1/agent/check/update/service:web", `{"Status":"critical","Output":"x"}`, 200, ""},
		{"PUT", "/v1/agent/check/update/service:web", `{"Status":"bad"}`, 400, "Invalid check status: 'bad'"},
		{"PUT", "/v1/agent/check/pass/none", "", 404, "*"},
		{"GET", "/v1/agent/health/service/name/none", "", 404, "[]"},
		{"GET", "/v1/agent/health/service/id/none", "", 404, "*"},
		{"PUT", "/v1/agent/service/register", `{}`, 400, "Missing service name"},
		{"PUT", "/v1/agent/service/register", `{"Name":"x","Port":"abc"}`, 400, "*"},
		{"PUT", "/v1/agent/check/register", `{}`, 400, "Missing check name"},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"5s","Status":"passing"}`, 200, ""},
		{"PUT", "/v1/agent/check/register", `{"Name":"c2","TTL":"5s","ServiceID":"gone"}`, 404, "*"},
		{"PUT", "/v1/agent/check/deregister/c", "", 200, ""},
		{"PUT", "/v1/agent/check/deregister/c", "", 404,
			`Unknown check ID "c". Ensure that the check ID is passed, not the check name.`},
		{"PUT", "/v1/agent/service/maintenance/web", "", 400, "Missing value for enable"},
		{"PUT", "/v1/agent/service/maintenance/none?enable=true", "", 404, "*"},
		{"PUT", "/v1/agent/service/maintenance/web?enable=true&reason=x", "", 200, ""},
		{"GET", "/v1/agent/health/service/id/web?format=text", "", 503, "maintenance"},
		{"PUT", "/v1/agent/service/maintenance/web?enable=false", "", 200, ""},
		{"PUT", "/v1/agent/maintenance", "", 400, "Missing value for enable"},
		{"PUT", "/v1/agent/maintenance?enable=true", "", 200, ""},
		{"PUT", "/v1/agent/maintenance?enable=false", "", 200, ""},
		{"PUT", "/v1/agent/service/deregister/web", "", 200, ""},
		{"PUT", "/v1/agent/service/deregister/web", "", 404,
			`Unknown service ID "web". Ensure that the service ID is passed, not the service name.`},
		{"GET", "/v1/agent/members", "", 200,
			`[{"Name":"n1","Addr":"10.0.0.1","Port":8301,"Tags":{"dc":"dc1","role":"consul"},"Status":1,"ProtocolMin":1,` +
				`"ProtocolMax":5,"ProtocolCur":2,"DelegateMin":2,"DelegateMax":5,"DelegateCur":4}]`},
		{"GET", "/v1/agent/members?filter=Tags.role+%3D%3D+node", "", 200, `[]`},
		{"PUT", "/v1/agent/join/10.0.0.2", "", 500, "nobody there"},
		{"PUT", "/v1/agent/force-leave/n1", "", 200, ""},
		{"PUT", "/v1/agent/force-leave/nx", "", 500, "agent: No node found with name 'nx'"},
		{"PUT", "/v1/agent/reload", "", 200, ""},
		{"PUT", "/v1/agent/leave", "", 200, ""},
		{"PUT", "/v1/agent/token/default", `{"Token":"x"}`, 401, "ACL support disabled"},
		{"GET", "/v1/agent/monitor?loglevel=loud", "", 400, "Unknown log level: loud"},
		{"GET", "/v1/agent/version", "", 200, `{"SHA":"","BuildDate":"","HumanVersion":"1.21.4","FIPS":""}`},
		{"GET", "/v1/agent/host", "", 200, "*"},
	})
	if !r.proc.left || !r.proc.reloaded {
		t.Error("leave and reload must reach the process")
	}
}

func TestOperatorRows(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"GET", "/v1/status/leader", "", 200, `"10.0.0.1:8300"`},
		{"GET", "/v1/status/peers", "", 200, `["10.0.0.1:8300"]`},
		{"GET", "/v1/operator/raft/configuration", "", 200,
			`{"Servers":[{"ID":"id1","Node":"n1","Address":"10.0.0.1:8300","Leader":true,"ProtocolVersion":"3","Voter":true,` +
				`"LastIndex":7}],"Index":3}`},
		{"DELETE", "/v1/operator/raft/peer", "", 400, "*"},
		{"DELETE", "/v1/operator/raft/peer?id=a&address=b", "", 400, "*"},
		{"DELETE", "/v1/operator/raft/peer?id=a", "", 200, ""},
		{"POST", "/v1/operator/raft/transfer-leader", "", 404, "Failed to transfer Leader: there is no peer"},
		{"GET", "/v1/operator/autopilot/configuration", "", 200,
			`{"CleanupDeadServers":true,"LastContactThreshold":"200ms","MaxTrailingLogs":250,"MinQuorum":0,` +
				`"ServerStabilizationTime":"10s","RedundancyZoneTag":"","DisableUpgradeMigration":false,"UpgradeVersionTag":"",` +
				`"CreateIndex":0,"ModifyIndex":5}`},
		{"PUT", "/v1/operator/autopilot/configuration?cas=4", `{}`, 200, "false"},
		{"PUT", "/v1/operator/autopilot/configuration?cas=5", `{"LastContactThreshold":"1s"}`, 200, "true"},
		{"PUT", "/v1/operator/autopilot/configuration", `{"MaxTrailingLogs":9}`, 200, ""},
		{"GET", "/v1/operator/autopilot/health", "", 429, "*"},
		{"GET", "/v1/operator/autopilot/state", "", 200, "*"},
	})
	if r.group.set.MaxTrailingLogs != 9 {
		t.Errorf("autopilot was not set: %+v", r.group.set)
	}
}
