package bodies

import (
	"encoding/json"
	"reflect"
	"testing"
)

// What parseRegister understands is what encoding/json makes of it.
func FuzzParseRegister(f *testing.F) {
	for _, seed := range plainRegistrations {
		f.Add(seed)
	}
	for _, seed := range []string{"", "{", "{}x", `{"Node":"a","Node":"b"}`, `{"node":"a"}`, `{"Node":null}`,
		`{"Node":"\\u0041"}`, `{"Node":"é"}`,
		`{"Service":{"Port":1.5}}`, `{"Service":{"Port":01}}`, `{"Service":{"Port":99999999999}}`, `{"Service":{"Proxy":{}}}`,
		`{"Checks":[null]}`, `{"Checks":[{}],"Check":{}}`, `{"Node":"a"}{}`, `{"Locality":{}}`,
		`{"Service":{"Tags":["a",]}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var fast, slow Register
		if !ParseRegister(body, &fast) {
			return
		}
		if err := Decode([]byte(body), &slow); err != nil {
			t.Fatalf("%q is taken, but encoding/json says %v", body, err)
		}
		if !reflect.DeepEqual(fast, slow) {
			t.Fatalf("%q: %+v, want %+v", body, fast, slow)
		}
	})
}

var plainRegistrations = []string{
	`{}`,
	`{"Node":"n","Address":"10.0.0.1","SkipNodeUpdate":true}`,
	` { "ID" : "x" , "Node" : "n",` + "\n\t" +
		`"TaggedAddresses":{"lan":"1","wan":"2"},"NodeMeta":{},"Datacenter":"dc1"} `,
	`{"Node":"n","Service":{"Kind":"","ID":"web-1","Service":"web","Tags":["a","b"],"Address":"1","TaggedAddresses":{` +
		`"lan":{"Address":"1","Port":2}},` +
		`"Meta":{"a":"b"},"Port":-80,"SocketPath":"/x","EnableTagOverride":false,"Weights":{"Passing":10,"Warning":1}}}`,
	`{"Node":"n","Check":{"Node":"n","CheckID":"c","Name":"up","Status":"passing","Notes":"","Output":"ok",` +
		`"ServiceID":"s","ServiceName":"s",` +
		`"ServiceTags":[],"Type":"http","Interval":"10s","Timeout":"1s","ExposedPort":1},"Checks":[{"CheckID":"a"},{` +
		`"CheckID":"b"}]}`,
}

func TestParseRegisterTakesWhatProgramsWrite(t *testing.T) {
	for _, body := range plainRegistrations {
		var in Register
		if !ParseRegister(body, &in) {
			t.Errorf("not taken: %s", body)
		}
	}
	// What encoding/json writes of the wire's own types without the parts that are rare.
	raw,
		err := json.Marshal(map[string]any{"Node": "n", "Address": "a", "Service": map[string]any{"ID": "s", "Service": "s",
		"Port": 8080, "Tags": []string{"x"}}})
	if err != nil {
		t.Fatal(err)
	}
	var in Register
	if !ParseRegister(string(raw), &in) || in.Service.Port != 8080 {
		t.Errorf("not taken: %s", raw)
	}
	if n := testing.AllocsPerRun(100, func() {
		var in Register
		ParseRegister(plainRegistrations[1], &in)
	}); n > 6 {
		t.Errorf("%v allocations", n)
	}
}
