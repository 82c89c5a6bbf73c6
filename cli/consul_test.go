package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/version"
)

// members as an agent tells them, for the two surfaces.
const twoMembers = `[{"Name":"n2","Addr":"10.0.0.2","Port":8301,"Status":4,"Tags":{"role":"node","dc":"dc1","vsn":"2","build":"1.21.4:abc"}},
	{"Name":"n1","Addr":"10.0.0.1","Port":8301,"Status":1,"Tags":{"role":"consul","dc":"dc1","vsn":"2","build":"1.21.4:abc"}}]`

// TestConsulCommandLine holds the output and the exit codes of Consul's command line, flag forms included.
func TestConsulCommandLine(t *testing.T) {
	f, e, out, errOut := newAgent(t)
	f.answers = map[string]string{
		"/v1/agent/members":       twoMembers,
		"/v1/catalog/datacenters": `["dc1","dc2"]`,
		"/v1/catalog/nodes": `[{"Node":"n1","ID":"12345678-aaaa","Address":"10.0.0.1","Datacenter":"dc1",` +
			`"TaggedAddresses":{"wan":"10.0.0.1","lan":"10.0.0.1"},"Meta":{"rack":"r1","consul-network-segment":""}}]`,
		"/v1/catalog/services": `{"web":["v1","edge"],"consul":[]}`,
		"/v1/catalog/node/n1":  `{"Services":{"w1":{"Service":"web","Tags":["b"]},"w2":{"Service":"web","Tags":["a"]}}}`,
		"/v1/operator/raft/configuration": `{"Servers":[{"ID":"u1","Node":"n1","Address":"10.0.0.1:8300","Leader":true,"Voter":true,"ProtocolVersion":"3","LastIndex":9},
			{"ID":"u2","Node":"n2","Address":"10.0.0.2:8300","Voter":true,"ProtocolVersion":"3","LastIndex":7}],"Index":3}`,
		"/v1/operator/autopilot/configuration": `{"CleanupDeadServers":true,"LastContactThreshold":"200ms",` +
			`"MaxTrailingLogs":250,"ServerStabilizationTime":"10s"}`,
		"/v1/operator/autopilot/state": `{"Healthy":true,"FailureTolerance":1,"OptimisticFailureTolerance":1,"Leader":"u1","Voters":["u1"],
			"Servers":{"u1":{"ID":"u1","Name":"n1","Address":"a:1","Version":"1.21.4","Status":"leader","NodeStatus":"alive","NodeType":"voter","Healthy":true,"LastContact":"0s","LastTerm":2,"LastIndex":9,"Meta":{"k":"v"}}}}`,
		"/v1/agent/self":           `{"Config":{"NodeName":"n1"},"Stats":{"raft":{"state":"Leader"}}}`,
		"/v1/agent/join/10.0.0.9":  ``,
		"/v1/agent/leave":          ``,
		"/v1/agent/reload":         ``,
		"/v1/agent/force-leave/n2": ``,
		"/v1/agent/maintenance":    ``,
		"/v1/agent/checks": `{"_node_maintenance":{"Node":"n1","CheckID":"_node_maintenance","Notes":"disk"},` +
			`"_service_maintenance:web":{"CheckID":"_service_maintenance:web","ServiceID":"web","Notes":"why"}}`,
	}
	const head = "Node  Address        Status  Type    Build   Protocol  DC   Partition  Segment\n"
	for _, tt := range []struct {
		args string
		code int
		want string // the whole stdout, or a part of stderr
	}{
		{"members", 0, head + "n1    10.0.0.1:8301  alive   server  1.21.4  2         dc1  default    <all>\nn2    " +
			"10.0.0.2:8301  failed  client  1.21.4  2         dc1  default    <default>\n"},
		{"members -status=alive", 0, head + "n1    10.0.0.1:8301  alive   server  1.21.4  2         dc1  default    <all>\n"},
		{"members -status=left", 2, ""},
		{"members -wan -detailed -status=failed", 0,
			"Node  Address        Status  Tags\nn2    10.0.0.2:8301  failed  build=1.21.4:abc,dc=dc1,role=node,vsn=2\n"},
		{"catalog datacenters", 0, "dc1\ndc2\n"},
		{"catalog nodes", 0, "Node  ID        Address   DC\nn1    12345678  10.0.0.1  dc1\n"},
		{"catalog nodes -detailed", 0, "Node  ID             Address   DC   TaggedAddresses             Meta\nn1    " +
			"12345678-aaaa  10.0.0.1  dc1  lan=10.0.0.1, wan=10.0.0.1  consul-network-segment=, rack=r1\n"},
		{"catalog services", 0, "consul\nweb\n"},
		{"catalog services -tags", 0, "consul\nweb       v1,edge\n"},
		{"catalog services -node=n1 -tags", 0, "web    a,b\n"},
		{"kv put -flags=3 k -5", 0, "Success! Data written to: k\n"},
		{"kv get k", 0, "-5\n"},
		{"kv get -detailed k", 0, "CreateIndex      11\nFlags            3\nKey              k\nLockIndex        " +
			"0\nModifyIndex      11\nSession          -\nValue            -5\n"},
		{"kv get missing", 1, "Error! No key exists at: missing"},
		{"kv get k extra", 1, "does not know what to do"},
		{"kv get", 1, "needs one key"},
		{"kv put -cas -modify-index=1 k v", 1, "Did not write to k"},
		{"kv delete k", 0, "Success! Deleted key: k\n"},
		{"operator raft list-peers", 0, "Node  ID  Address        State     Voter  RaftProtocol  Commit Index  Trails " +
			"Leader By\n" +
			"n1    u1  10.0.0.1:8300  leader    true   3             9             -\nn2    u2  10.0.0.2:8300  follower  " +
			"true   3             7             2 commits\n"},
		{"operator autopilot get-config", 0, "CleanupDeadServers = true\nLastContactThreshold = 200ms\nMaxTrailingLogs = " +
			"250\nMinQuorum = 0\nServerStabilizationTime = 10s\nRedundancyZoneTag = \"\"\nDisableUpgradeMigration = " +
			"false\nUpgradeVersionTag = \"\"\n"},
		{"operator raft remove-peer", 1, "`consul operator raft list-peers`"},
		{"info", 0, "raft:\n\tstate = Leader\n"},
		{"join 10.0.0.9", 0, "Successfully joined cluster by contacting 1 nodes.\n"},
		{"leave", 0, "Graceful leave complete\n"},
		{"force-leave -prune n2", 0, ""},
		{"reload", 0, "Configuration reload triggered\n"},
		{"maint", 0, "Node:\n  Name:   n1\n  Reason: disk\n\nService:\n  ID:     web\n  Reason: why\n\n"},
		{"maint -enable -reason=x", 0, "Node maintenance is now enabled\n"},
		{"nope", 127, `unknown command "nope"`},
		{"members -nope", 1, "unknown flag: --nope"},
		{"members -namespace=team", 1, "there is only default"},
	} {
		out.Reset()
		errOut.Reset()
		code := dispatch(t.Context(), e, append([]string{"/usr/bin/consul"}, strings.Fields(tt.args)...))
		if code != tt.code || code != 1 && code != 127 && out.String() != tt.want ||
			!strings.Contains(out.String()+errOut.String(), tt.want) {
			t.Errorf("consul %s: code %d, want %d\n%s%s\nwant\n%s", tt.args, code, tt.code, out, errOut, tt.want)
		}
	}
	out.Reset()
	if dispatch(t.Context(), e, []string{"consul", "operator", "autopilot", "state"}); !strings.Contains(out.String(),
		"Failure Tolerance:            1\n") ||
		!strings.Contains(out.String(), "      Node Type:       voter\n") ||
		!strings.Contains(out.String(), "         \"k\": \"v\"\n") {
		t.Errorf("autopilot state:\n%s", out)
	}
}

// TestKnownNames: the name of the program, or the first argument, chooses the command line.
func TestKnownNames(t *testing.T) {
	_, e, out, _ := newAgent(t)
	for _, tt := range []struct{ args, want string }{
		{"/opt/bin/consul version", "Consul v" + version.Contract + "\n"},
		{"corbel consul version", "Consul v" + version.Contract + "\n"},
		{"corbel version", "Corbel v" + version.Number + "\n"},
		{"/opt/bin/corbel-new --version", "Corbel v" + version.Number + "\n"},
		{"consul --version", "Consul v" + version.Contract + "\n"},
		{"consul version -format=json", "{\n    \"Version\": \"" + version.Contract + "\","},
	} {
		out.Reset()
		e.Consul = false
		if code := dispatch(t.Context(), e, strings.Fields(tt.args)); code != 0 || !strings.HasPrefix(out.String(), tt.want) {
			t.Errorf("%s: code %d:\n%s", tt.args, code, out)
		}
	}
	for args, want := range map[string]int{"consul": 127, "consul kv": 1, "corbel": 2, "corbel kv": 2} {
		e.Consul = false
		if code := dispatch(t.Context(), e, strings.Fields(args)); code != want {
			t.Errorf("%s: code %d, want %d", args, code, want)
		}
	}
}

// TestLink: links are made once, and what is in the way stays unless forced.
func TestLink(t *testing.T) {
	_, e, out, errOut := newAgent(t)
	dir := t.TempDir()
	link := filepath.Join(dir, "consul")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"link", dir}, 0, "(made;"},
		{[]string{"link", dir}, 0, "(was there;"},
		{[]string{"link", "-json", dir}, 0, `"Result": "was there"`},
		{[]string{"link", filepath.Join(dir, "none")}, 1, "is not a folder"},
	} {
		out.Reset()
		errOut.Reset()
		if code := run(t.Context(), e, tt.args); code != tt.code || !strings.Contains(out.String()+errOut.String(), tt.want) {
			t.Errorf("%v: %d %s%s", tt.args, code, out, errOut)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if target, err := filepath.EvalSymlinks(link); err != nil || filepath.Base(target) != filepath.Base(self) {
		t.Fatalf("%s leads to %s, %v", link, target, err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(link, []byte("the old one"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), e, []string{"link", dir}); code != 1 {
		t.Errorf("wrote over a file: %d", code)
	}
	if code := run(t.Context(), e, []string{"link", "-force", dir}); code != 0 {
		t.Errorf("--force: %d %s", code, errOut)
	}
}
