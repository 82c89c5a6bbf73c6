package bodies

import (
	"bytes"
	"testing"
)

var hostile = []string{"", "null", "{}", "[]", "[[[[", `{"Node":5}`, `{"Service":{"Port":"x"}}`, "{\"Node\":\"\xff\"}",
	`{"Node":"n","Address":"a","Checks":[null,{}]}`, `{"Service":{"Proxy":null,"Connect":{"Native":1}}}`}

func FuzzBodies(f *testing.F) {
	for _, b := range hostile {
		if len(b) < 1000 {
			f.Add([]byte(b))
		}
	}
	f.Add([]byte(`{"Node":"n","Address":"a","Service":{"Service":"s","Proxy":{"Mode":"direct"}},"Check":{"Definition":{` +
		`"Interval":"10s","Timeout":5}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var reg Register
		if Decode(b, &reg) == nil {
			_, _ = reg.Command("dc1")
		}
		if proxy, _, err := CanonicalProxy(b); err == nil && proxy != nil {
			again, _, err := CanonicalProxy(proxy)
			if err != nil || !bytes.Equal(again, proxy) {
				t.Fatalf("canonical form is not stable: %s, %s, %v", proxy, again, err)
			}
		}
	})
}
