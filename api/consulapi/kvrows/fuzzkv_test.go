package kvrows

import (
	"testing"

	"corbel.dev/corbel/api/consulapi/bodies"
)

// FuzzKVBodies decodes what clients may send of transactions and sessions.
func FuzzKVBodies(f *testing.F) {
	f.Add([]byte(`[{"KV":{"Verb":"set","Key":"a","Value":"aGk="}}]`))
	f.Add([]byte(`{"Node":"n","TTL":15,"LockDelay":"5s","Checks":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var ops []wireTxnOp
		_ = bodies.Decode(b, &ops)
		var s wireSession
		if bodies.Decode(b, &s) == nil {
			_ = s.session("n")
		}
	})
}
