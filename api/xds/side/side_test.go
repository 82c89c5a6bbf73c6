package side

import "testing"

// FuzzFields: what callers send is read or refused.
func FuzzFields(f *testing.F) {
	f.Add(putMessage(put(putNumber(nil, 2, 1), 1, "x"), 3, put(put(nil, 1, "k"), 2, "v")))
	f.Add([]byte{0xff})
	f.Add([]byte{0x1a, 0x02, 0x0a, 0x05})
	f.Fuzz(func(t *testing.T, b []byte) {
		text, numbers, meta, err := fields(b, 3)
		if err != nil {
			if text != nil || numbers != nil || meta != nil {
				t.Error("a refused message has fields")
			}
			return
		}
		for num, v := range text {
			if again, _, _, err := fields(putMessage(nil, num, []byte(v)), 0); err != nil || again[num] != v {
				t.Errorf("field %d: %q, %v", num, again[num], err)
			}
		}
	})
}
