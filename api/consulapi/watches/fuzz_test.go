package watches

import (
	"testing"

	"corbel.dev/corbel/api/consulapi/bodies"
)

// FuzzWatches decodes what a client wants to follow.
func FuzzWatches(f *testing.F) {
	f.Add([]byte(`[{"ID":"1","Path":"/v1/kv/a","Index":5},{"ID":"2","Path":"/v1/health/service/web?passing"}]`))
	f.Add([]byte(`[{"ID":"1","Type":"key","Key":"a"}]`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var list []wireWatch
		_ = bodies.Decode(b, &list)
	})
}
