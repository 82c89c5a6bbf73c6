package snapfile

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"github.com/hashicorp/go-msgpack/v2/codec"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var update = flag.Bool("update", false, "write testdata/consul.snap anew")

// fixture is an archive made to the documented layout.
const fixture = "testdata/consul.snap"

// record is one object of a state.
type record struct {
	kind byte
	body any
}

// entryRequest is written as config entries are: bytes that hold the kind and then the fields.
type entryRequest struct {
	kind string
	body map[string]any
}

func (e entryRequest) MarshalBinary() ([]byte, error) {
	var b []byte
	enc := codec.NewEncoderBytes(&b, &codec.MsgpackHandle{})
	enc.MustEncode(e.kind)
	enc.MustEncode(e.body)
	return b, nil
}

// UnmarshalBinary makes the encoder take MarshalBinary.
func (e *entryRequest) UnmarshalBinary([]byte) error { return nil }

func stateOf(t testing.TB, records ...record) []byte {
	t.Helper()
	var b bytes.Buffer
	h := &codec.MsgpackHandle{}
	enc := codec.NewEncoder(&b, h)
	if err := enc.Encode(map[string]any{"LastIndex": uint64(1234)}); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		b.WriteByte(r.kind)
		if err := enc.Encode(r.body); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

type m = map[string]any

// everything has an object of each type that comes over, and of those that do not.
func everything() []record {
	policy, role := "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000001"
	end := time.Date(2099, 1, 2, 3, 4, 5, 6, time.UTC)
	endBytes, _ := end.MarshalBinary()
	return []record{
		{0, m{"Datacenter": "dc1", "ID": "", "Node": "db1", "Address": "10.0.0.9", "TaggedAddresses": m{"lan": "10.0.0.9"},
			"NodeMeta": m{"external-node": "true"}, "Service": nil, "Check": nil}},
		{0, m{"Node": "db1", "Address": "10.0.0.9", "Service": m{"Kind": "", "ID": "pg", "Service": "postgres", "Port": 5432,
			"Tags": []string{"primary"}, "Meta": m{}, "Address": "",
			"Weights": m{"Passing": 1, "Warning": 1}, "EnableTagOverride": false, "Proxy": m{"Mode": "", "Config": nil},
			"Connect": m{"Native": false}, "CreateIndex": 7, "ModifyIndex": 9}}},
		{0, m{"Node": "db1", "Address": "10.0.0.9", "Check": m{"Node": "db1", "CheckID": "service:pg", "ServiceID": "pg",
			"ServiceName": "postgres", "Name": "tcp", "Status": "passing",
			"Definition": m{"TCP": "10.0.0.9:5432", "Interval": int64(10 * time.Second), "Timeout": int64(0)}}}},
		{0, m{"Node": "host1", "Address": "10.0.0.1", "Check": m{"Node": "host1", "CheckID": "serfHealth",
			"Name": "Serf Health Status", "Status": "passing"}}},
		{0, m{"Node": "far", "Address": "10.9.0.1", "PeerName": "other",
			"Service": m{"ID": "x", "Service": "x", "PeerName": "other"}}},
		{2, m{"Key": "app/limit", "Value": []byte("100"), "Flags": uint64(7), "Session": "", "LockIndex": 0}},
		{2, m{"Key": "app/locked", "Value": []byte{0, 255}, "Flags": uint64(1) << 63,
			"Session": "5c1a2f3e-0000-0000-0000-000000000000", "LockIndex": 3}},
		{2, m{"Key": "app/empty", "Value": nil, "Flags": 0}},
		{3, m{"ID": "5c1a2f3e-0000-0000-0000-000000000000", "Node": "host1"}},
		{5, m{"Key": "app/gone"}},
		{7, m{"ID": "cccccccc-0000-0000-0000-000000000001", "Name": "near", "Session": "", "Token": "",
			"Template": m{"Type": ""},
			"Service": m{"Service": "postgres", "Failover": m{"NearestN": 0, "Datacenters": nil}, "OnlyPassing": true,
				"Tags": nil}, "DNS": m{"TTL": "5s"}}},
		{9, m{"CleanupDeadServers": true}},
		{13, m{"Active": true}},
		{16, m{"Key": "kvs", "Value": 9}},
		{19, m{"ID": policy, "Name": "writer", "Description": "", "Rules": `key_prefix "app/" { policy = "write" }`,
			"Datacenters": nil, "Hash": []byte{1, 2}}},
		{19, m{"ID": "00000000-0000-0000-0000-000000000001", "Name": "global-management"}},
		{23, m{"ID": role, "Name": "ops", "Policies": []m{{"ID": policy}}, "ServiceIdentities": nil}},
		{17, m{"AccessorID": "dddddddd-0000-0000-0000-000000000001", "SecretID": "11111111-2222-3333-4444-555555555555",
			"Description": "of ops", "Policies": nil, "Roles": []m{{"ID": role}},
			"Local": false, "ExpirationTime": nil, "ExpirationTTL": int64(0), "CreateTime": endBytes, "Hash": []byte{3}}},
		{17, m{"AccessorID": "dddddddd-0000-0000-0000-000000000002", "SecretID": "11111111-2222-3333-4444-666666666666",
			"Policies": []m{{"ID": policy, "Name": ""}}}},
		{22, entryRequest{"service-defaults", m{"Op": "upsert", "Entry": m{"Kind": "service-defaults", "Name": "web",
			"Protocol": "http", "Mode": "", "TransparentProxy": m{"OutboundListenerPort": 0},
			"UpstreamConfig": m{"Defaults": m{"PassiveHealthCheck": m{"Interval": int64(10 * time.Second)}}}, "Meta": nil,
			"CreateIndex": 3}}}},
		{22, m{"Op": "upsert", "Entry": m{"Kind": "service-intentions", "Name": "db",
			"Sources": []m{{"Name": "web", "Action": "allow", "Type": "consul", "Precedence": 9, "LegacyID": ""}}}}},
		{12, m{"ID": "eeeeeeee-0000-0000-0000-000000000001", "SourceName": "old", "DestinationName": "older",
			"Action": "deny", "SourceType": "consul"}},
		{77, m{"Something": []any{"from", "the", m{"future": true}}}},
	}
}

func archiveOf(t testing.TB, state []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	meta := &archive.Meta{Version: 1, ID: "2-1234-1600000000000", Index: 1234, Term: 2, Size: int64(len(state))}
	if err := archive.Write(&b, meta, bytes.NewReader(state), time.Unix(1600000000, 0)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ask reads what the source shows under a path.
func ask(t *testing.T, s *Source, path string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://snapshot/v1/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", path, resp.StatusCode, b, err)
	}
	return string(b)
}

func TestOpen(t *testing.T) {
	if *update {
		if err := os.MkdirAll(filepath.Dir(fixture), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fixture, archiveOf(t, stateOf(t, everything()...)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(fixture)
	if err != nil {
		t.Fatal(err)
	}
	if s.Index() != 1234 || !s.Complete() {
		t.Errorf("index %d, complete %v", s.Index(), s.Complete())
	}
	for path, want := range map[string]string{
		"kv/": `[{"Flags":7,"Key":"app/limit","Value":"MTAw"},{"Flags":9223372036854775808,` +
			`"Key":"app/locked","Value":"AP8="},{"Flags":0,"Key":"app/empty","Value":""}]`,
		"agent/members": `[{"Name":"host1"}]`,
		"catalog/nodes": `[{"Address":"10.0.0.9","Datacenter":"dc1","Meta":{"external-node":"true"},` +
			`"Node":"db1","TaggedAddresses":{"lan":"10.0.0.9"}},{"Address":"10.0.0.1","Node":"host1"}]`,
		"health/node/db1": `[{"CheckID":"service:pg","Definition":{"Interval":"10s","TCP":"10.0.0.9:5432"},` +
			`"Name":"tcp","Node":"db1","ServiceID":"pg","ServiceName":"postgres","Status":"passing"}]`,
		"query": `[{"DNS":{"TTL":"5s"},"ID":"cccccccc-0000-0000-0000-000000000001","Name":"near",` +
			`"Service":{"OnlyPassing":true,"Service":"postgres"}}]`,
		"acl/roles": `[{"ID":"bbbbbbbb-0000-0000-0000-000000000001","Name":"ops","Policies":[{` +
			`"ID":"aaaaaaaa-0000-0000-0000-000000000001","Name":"writer"}]}]`,
		"config/service-defaults": `[{"Expose":{},"Kind":"service-defaults","MeshGateway":{},"Name":"web",` +
			`"Protocol":"http","UpstreamConfig":{"Defaults":{"PassiveHealthCheck":{"Interval":"10s"}}}}]`,
		"config/service-resolver": `[]`,
		"connect/intentions": `[{"Action":"deny","DestinationName":"older",` +
			`"ID":"eeeeeeee-0000-0000-0000-000000000001","SourceName":"old","SourceType":"consul"}]`,
		"catalog/node/nobody":       `null`,
		"acl/auth-methods":          `[]`,
		"config/service-intentions": "",
	} {
		if got := ask(t, s, path); want != "" && got != want {
			t.Errorf("%s:\n got %s\nwant %s", path, got, want)
		}
	}
	notes := strings.Join(s.Notes(), "\n")
	for _, want := range []string{"sessions (1)", "tombstones (1)", "autopilot (1)", "certificate authority (1)",
		"1 objects of type 77", "1 keys were locked", "1 registrations came from peers"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}

// Tokens keep the time of their end in whichever way it was written; those that have ended stay behind.
func TestTokensEnd(t *testing.T) {
	token := func(end any) record {
		return record{17, m{"AccessorID": "a", "SecretID": "s", "ExpirationTime": end}}
	}
	end := time.Date(2099, 1, 2, 3, 4, 5, 6, time.UTC)
	raw, err := end.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	past, _ := time.Unix(1600000000, 0).MarshalBinary()
	s, err := Parse(bytes.NewReader(stateOf(t, token(nil), token(raw), token(end.Format(time.RFC3339Nano)), token(end),
		token(past))))
	if err != nil {
		t.Fatal(err)
	}
	var tokens []m
	if err := json.Unmarshal([]byte(ask(t, s, "acl/tokens")), &tokens); err != nil || len(tokens) != 4 {
		t.Fatalf("%v: %v\n%v", err, tokens, s.Notes())
	}
	for i, have := range tokens {
		if want := any("2099-01-02T03:04:05.000000006Z"); i > 0 && have["ExpirationTime"] != want ||
			i == 0 && have["ExpirationTime"] != nil {
			t.Errorf("token %d ends at %v", i, have["ExpirationTime"])
		}
	}
	if notes := strings.Join(s.Notes(), "\n"); !strings.Contains(notes, "1 tokens had expired") {
		t.Errorf("notes: %s", notes)
	}
}

// What is wrong in one object leaves that object out; what breaks the stream ends the run.
func TestDamage(t *testing.T) {
	s, err := Parse(bytes.NewReader(stateOf(t, record{2, m{"Value": "x"}}, record{2, "no object"}, record{2, 7},
		record{2, m{"Key": "kept"}},
		record{17, m{"AccessorID": "a", "SecretID": "b", "ExpirationTime": []byte("next week")}},
		record{0, m{"Address": "x"}})))
	if err != nil {
		t.Fatal(err)
	}
	if s.Complete() || len(s.pairs) != 1 || len(s.acl["tokens"]) != 0 {
		t.Errorf("%d keys, %d tokens, complete %v", len(s.pairs), len(s.acl["tokens"]), s.Complete())
	}
	notes := strings.Join(s.Notes(), "\n")
	for _, want := range []string{"3 of 4 keys", "1 of 1 tokens could not be read", "1 of 1 registrations"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	whole := stateOf(t, everything()...)
	for name, bad := range map[string][]byte{
		"nothing":             nil,
		"a Corbel state":      []byte("corbel-catalog\n"),
		"no head":             whole[20:],
		"cut":                 whole[:len(whole)-3],
		"a type alone":        append(bytes.Clone(whole), 2),
		"a code that is none": append(bytes.Clone(whole), 2, 0xc1),
		"a claim of 4 GiB":    append(bytes.Clone(whole), 2, 0xc6, 0xff, 0xff, 0xff, 0xff, 'x'),
		"a claim of a map":    append(bytes.Clone(whole), 2, 0xdf, 0xff, 0xff, 0xff, 0xff, 'x'),
		"depth":               append(append(bytes.Clone(whole), 2), bytes.Repeat([]byte{0x91}, 100)...),
	} {
		if _, err := Parse(bytes.NewReader(bad)); !errkind.Is(err, errkind.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !IsConsul(bytes.NewReader(whole)) || IsConsul(strings.NewReader("corbel-catalog\n")) ||
		IsConsul(strings.NewReader("")) {
		t.Error("the two kinds of state are not told apart")
	}
}

// FuzzParse reads any bytes as a state and asks all that migrate asks.
func FuzzParse(f *testing.F) {
	f.Add(stateOf(f, everything()...))
	for _, r := range everything() {
		f.Add(stateOf(f, r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(bytes.NewReader(b))
		if err != nil {
			return
		}
		s.Notes()
		for _, path := range []string{"kv/", "query", "catalog/nodes", "agent/members", "acl/tokens", "acl/policies",
			"acl/roles", "connect/intentions", "config/service-defaults"} {
			if v, ok := s.answer(path); ok {
				if _, err := json.Marshal(v); err != nil {
					t.Fatalf("%s cannot be said in JSON: %v", path, err)
				}
			}
		}
		for name := range s.nodes {
			for _, path := range []string{"catalog/node/", "health/node/"} {
				if v, ok := s.answer(path + name); ok {
					if _, err := json.Marshal(v); err != nil {
						t.Fatalf("%s%s cannot be said in JSON: %v", path, name, err)
					}
				}
			}
		}
	})
}
