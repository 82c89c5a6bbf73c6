package framing

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"corbel.dev/corbel/kit/errkind"
)

// TestFrames: what was written is cut and read as it was, however it arrives and wherever it ends.
func TestFrames(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 70_000)
	var all []byte
	payloads := [][]byte{nil, []byte("a"), long, []byte("last")}
	for i, p := range payloads {
		b, mark := Begin(all, byte(i))
		all = End(append(b, p...), mark)
	}
	rest := all
	in := NewReader(iotest.OneByteReader(bytes.NewReader(all)), 16, 1<<20)
	for i, want := range payloads {
		var kind byte
		var got []byte
		var err error
		kind, got, rest, err = Cut(rest)
		if err != nil || kind != byte(i) || !bytes.Equal(got, want) {
			t.Errorf("frame %d was cut as %d with %d bytes, %v", i, kind, len(got), err)
		}
		kind, got, owned, err := in.Next()
		if err != nil || kind != byte(i) || !bytes.Equal(got, want) || owned != (len(want) > 16) {
			t.Errorf("frame %d was read as %d with %d bytes (owned %t), %v", i, kind, len(got), owned, err)
		}
	}
	if _, _, _, err := in.Next(); err != io.EOF || len(rest) > 0 {
		t.Errorf("after the last one: %v, %d bytes", err, len(rest))
	}
}

// TestDamage: a frame that ends early, or is longer than may be, is told before anything is allocated for it.
func TestDamage(t *testing.T) {
	b, mark := Begin(nil, 7)
	b = End(append(b, "payload"...), mark)
	for cut := 1; cut < len(b); cut++ {
		if _, _, _, err := Cut(b[:cut]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes were cut: %v", cut, err)
		}
		if _, _, _, err := NewReader(bytes.NewReader(b[:cut]), 16, 100).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes were read: %v", cut, err)
		}
	}
	if _, _, _, err := NewReader(bytes.NewReader(b), 16, 6).Next(); errkind.Of(err) != errkind.Invalid {
		t.Errorf("a frame of 7 bytes where 6 are allowed: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _, _ = Cut(b) }); n > 0 {
		t.Errorf("cutting allocates %g times", n)
	}
}

func FuzzCut(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 'a', 2, 0, 0, 0})
	f.Add([]byte{1, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		for whole := b; len(b) > 0; {
			kind, payload, rest, err := Cut(b)
			if err != nil {
				return
			}
			again, mark := Begin(nil, kind)
			if again = End(append(again, payload...), mark); !bytes.Equal(again, b[:len(b)-len(rest)]) {
				t.Fatalf("%x holds a frame that is written as %x", whole, again)
			}
			b = rest
		}
	})
}
