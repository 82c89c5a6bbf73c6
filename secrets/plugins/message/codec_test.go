package message

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// What is written is read back, with every kind of field that there is.
func TestThereAndBack(t *testing.T) {
	in := &RequestArgs{Request: &Request{ID: "1", Path: "login", Data: `{"a":1}`,
		Secret:  &Secret{Lease: &LeaseOptions{TTL: -5, Renewable: true, IssueTime: &Time{Seconds: 7, Nanos: 3}}},
		Auth:    &Auth{Policies: []string{"a", ""}, Metadata: map[string]string{"k": "v", "": ""}, TokenType: 4},
		Headers: map[string]*Header{"X": {Values: []string{"1", "2"}}},
		Holder:  Holder{Unauthenticated: true}, Mounted: Mounted{MountPoint: "x/"},
		Connection: &Connection{RemoteAddr: "10.0.0.1", RemotePort: 80,
			TLS: &TLS{Peer: &Chain{Certificates: []*Certificate{{DER: []byte{1, 0, 255}}}}}}}}
	raw, err := Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	out := &RequestArgs{}
	if err := Unmarshal(raw, out); err != nil || !reflect.DeepEqual(in, out) {
		t.Fatalf("%v: %+v", err, out.Request)
	}
	if err := Unmarshal(nil, out); err != nil {
		t.Error(err)
	}
}

// The bytes are those that every implementation of protocol buffers writes.
func TestBytesOnTheWire(t *testing.T) {
	raw, err := Marshal(&StorageWrite{Entry: &StorageEntry{Key: "k", Value: []byte("v"), SealWrap: true}})
	if want := []byte{0x0a, 8, 0x0a, 1, 'k', 0x12, 1, 'v', 0x18, 1}; err != nil || !bytes.Equal(raw, want) {
		t.Errorf("% x, %v", raw, err)
	}
	raw, _ = Marshal(&TTLReply{TTL: -1})
	if want := append([]byte{0x08}, bytes.Repeat([]byte{0xff}, 9)...); !bytes.Equal(raw, append(want, 1)) {
		t.Errorf("% x", raw)
	}
}

// What a newer plug-in adds is passed over; what is broken is an error and no panic.
func TestUnknownAndBroken(t *testing.T) {
	raw, _ := Marshal(&StorageKey{Key: "k"})
	raw = protowire.AppendVarint(protowire.AppendTag(raw, 99, protowire.VarintType), 5)
	raw = protowire.AppendFixed64(protowire.AppendTag(raw, 100, protowire.Fixed64Type), 5)
	var key StorageKey
	if err := Unmarshal(raw, &key); err != nil || key.Key != "k" {
		t.Error(err, key)
	}
	for name, raw := range map[string][]byte{"a number in the place of a text": {0x08, 1}, "cut": {0x0a, 5, 'a'},
		"no text": {0x0a, 1, 0xff}, "a tag of nothing": {0x00, 1}} {
		if err := Unmarshal(raw, &StorageKey{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := Unmarshal(nil, StorageKey{}); err == nil || !strings.Contains(err.Error(), "pointer") {
		t.Error(err)
	}
}

// Whatever a plug-in sends, reading it ends, and what was read is written the same again.
func FuzzUnmarshal(f *testing.F) {
	raw, _ := Marshal(&RequestReply{Response: &Response{Data: "{}", Auth: &Auth{Alias: &Alias{Name: "a"}},
		Headers: map[string]*Header{"X": {Values: []string{"1"}}}}, Err: &Error{Kind: 3, Code: 404}})
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var once, twice RequestReply
		if Unmarshal(raw, &once) != nil {
			return
		}
		again, err := Marshal(&once)
		if err == nil {
			err = Unmarshal(again, &twice)
		}
		if err != nil || !reflect.DeepEqual(once, twice) {
			t.Errorf("%v: %+v, %+v", err, once, twice)
		}
	})
}
