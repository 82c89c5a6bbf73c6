package answer

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog"
)

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "<a&b>\"\\", "\x00\x1f\x7f\b\f\n\r\t", "\u2028\u2029", "\xff\xc3", "é𝄞"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendString(nil, s); !bytes.Equal(got, want) {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}

// same fails unless both texts hold the same JSON.
func same(t *rapid.T, got []byte, want any) {
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if !bytes.Equal(x, y) {
		t.Fatalf("got  %s\nwant %s", x, y)
	}
}

type strMap = map[string]string

var (
	texts   = rapid.String()
	indexes = rapid.Uint64()
	strMaps = rapid.MapOfN(texts, texts, 0, 20)
)

// TestEncodersMatchReflection compares each encoder with encoding/json over a
// struct that states the contract's names.
func TestEncodersMatchReflection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &catalog.KVPair{Key: texts.Draw(t, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"),
			Flags:   indexes.Draw(t, "flags"),
			Session: texts.Draw(t, "session"), LockIndex: 3, CreateIndex: 4, ModifyIndex: 5}
		value := p.Value
		if len(value) == 0 {
			value = nil
		}
		same(t, AppendKVPair(nil, p), struct {
			LockIndex                uint64
			Key                      string
			Flags                    uint64
			Value                    []byte
			Session                  string `json:",omitempty"`
			CreateIndex, ModifyIndex uint64
		}{3, p.Key, p.Flags, value, p.Session, 4, 5})

		n := &catalog.Node{ID: texts.Draw(t, "id"), Name: texts.Draw(t, "node"), Address: texts.Draw(t, "address"),
			Datacenter:      "dc1",
			TaggedAddresses: strMaps.Draw(t, "tagged"), Meta: strMaps.Draw(t, "meta"), CreateIndex: 1,
			ModifyIndex: indexes.Draw(t, "index")}
		if rapid.Bool().Draw(t, "locality") {
			n.Locality = &catalog.Locality{Region: texts.Draw(t, "region"), Zone: "z"}
		}
		same(t, AppendNode(nil, n), struct {
			ID, Node, Address, Datacenter string
			TaggedAddresses, Meta         strMap
			Locality                      *catalog.Locality `json:",omitempty"`
			CreateIndex, ModifyIndex      uint64
		}{n.ID, n.Name, n.Address, n.Datacenter, n.TaggedAddresses, n.Meta, n.Locality, 1, n.ModifyIndex})

		c := &catalog.Check{Node: n.Name, ID: texts.Draw(t, "check"), Name: "c", Status: catalog.Warning,
			Notes:  texts.Draw(t, "notes"),
			Output: texts.Draw(t, "output"), ServiceTags: rapid.SliceOf(texts).Draw(t, "tags"), Type: "ttl", ExposedPort: 9,
			Indexes: catalog.Indexes{ModifyIndex: 8}}
		tags := c.ServiceTags
		if tags == nil {
			tags = []string{}
		}
		same(t, AppendCheck(nil, c), struct {
			Node, CheckID, Name, Status, Notes, Output, ServiceID, ServiceName string
			ServiceTags                                                        []string
			Type, Interval, Timeout                                            string
			ExposedPort                                                        int
			Definition                                                         struct{}
			CreateIndex, ModifyIndex                                           uint64
		}{c.Node, c.ID, "c", "warning", c.Notes, c.Output, "", "", tags, "ttl", "", "", 9, struct{}{}, 0, 8})

		s := &catalog.Session{ID: "i", Name: texts.Draw(t, "name"), Node: n.Name, LockDelay: time.Second, Behavior: "release",
			NodeChecks:    []string{"a"},
			ServiceChecks: []catalog.ServiceCheckRef{{ID: texts.Draw(t, "ref")}}, CreateIndex: 1}
		same(t, AppendSession(nil, s), struct {
			ID, Name, Node           string
			LockDelay                time.Duration
			Behavior, TTL            string
			NodeChecks               []string
			ServiceChecks            []catalog.ServiceCheckRef
			CreateIndex, ModifyIndex uint64
		}{s.ID, s.Name, s.Node, s.LockDelay, s.Behavior, "", s.NodeChecks, s.ServiceChecks, 1, 0})

		svc := &catalog.Service{Node: n.Name, ID: texts.Draw(t, "sid"), Name: texts.Draw(t, "sname"), Tags: c.ServiceTags,
			Meta: n.Meta, Port: 80, Connect: catalog.Connect{Native: true},
			TaggedAddresses: map[string]catalog.ServiceAddress{"lan": {Address: n.Address, Port: 1}},
			Weights:         catalog.Weights{Passing: 1, Warning: 1}, Indexes: catalog.Indexes{ModifyIndex: 2}}
		for _, b := range [][]byte{AppendService(nil, svc), AppendAgentService(nil, svc, "dc1", "h"),
			AppendServiceNode(nil, n, svc), AppendEntry(nil, n, svc, []*catalog.Check{c})} {
			if !json.Valid(b) {
				t.Fatalf("not JSON: %s", b)
			}
		}
	})
}
