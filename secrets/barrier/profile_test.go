package barrier

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"runtime/pprof"
	"testing"
	"time"

	"corbel.dev/corbel/secrets/storage/memstore"
)

// TestProfilesHoldNoKeys: what `enable_debug` and sys/pprof show of an unsealed barrier has addresses and counts, and
// no key in any spelling.
func TestProfilesHoldNoKeys(t *testing.T) {
	b := New(memstore.New(), time.Now)
	root := bytes.Repeat([]byte("root key"), KeyBytes/8)
	if err := b.Initialize(t.Context(), 0, root, nil); err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{root, b.ring.Load().active.value}
	for _, profile := range pprof.Profiles() {
		for debug := range 3 {
			var out bytes.Buffer
			if err := profile.WriteTo(&out, debug); err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				for _, spelling := range [][]byte{key, []byte(hex.EncodeToString(key[:8])),
					[]byte(base64.StdEncoding.EncodeToString(key)[:16])} {
					if bytes.Contains(out.Bytes(), spelling) {
						t.Errorf("the profile %s with debug=%d shows a key", profile.Name(), debug)
					}
				}
			}
		}
	}
}
