package sensurest

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/api/sensuapi/mergepatch"
	"corbel.dev/corbel/kit/tagproto"
)

// Whatever a body holds, reading it ends with an object or an error; what was read and written comes back as it was.
func FuzzBodies(f *testing.F) {
	for _, s := range samples {
		for i := range kinds {
			f.Add(uint8(i), []byte(s.body))
		}
	}
	f.Add(uint8(0), []byte(`{"type":"Env","api_version":"secrets/v1","metadata":null,"spec":null}`))
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		k := kinds[int(which)%len(kinds)]
		q := &request{kind: k, namespace: "default", r: httptest.NewRequest("PUT", "/", nil), w: httptest.NewRecorder()}
		o, err := q.read(body)
		if err != nil || q.place(o) != nil || o.Validate() != nil {
			return
		}
		again := k.New()
		if err := tagproto.Unmarshal(tagproto.Append(nil, o), again); err != nil {
			t.Fatalf("%s: what was written cannot be read: %v", body, err)
		}
		if _, err := json.Marshal(o); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
	})
}

// A merge patch is JSON again, and the same patch once more changes nothing.
func FuzzMergePatch(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1},"c":[1]}`), []byte(`{"a":{"b":null,"d":2},"c":null}`))
	f.Add([]byte(`[]`), []byte(`{"a":{"b":{"c":null}}}`))
	f.Fuzz(func(t *testing.T, target, change []byte) {
		if !json.Valid(target) {
			return
		}
		once, err := mergepatch.Apply(json.RawMessage(target), change)
		if err != nil {
			return
		}
		twice, err := mergepatch.Apply(json.RawMessage(once), change)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("%s, then %s (%v)", once, twice, err)
		}
	})
}
