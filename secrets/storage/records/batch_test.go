package records

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

var someBatches = []Batch{
	{}, {Epoch: 7, Fence: true}, {Epoch: 1 << 60, Ops: []storage.Op{storage.Put("a/b", []byte("x")), storage.Delete("c"),
		storage.Put("empty", nil)}},
}

func TestBatchRoundTrip(t *testing.T) {
	for _, b := range someBatches {
		raw := b.Append(nil)
		got, err := DecodeBatch(raw)
		if len(b.Ops) == 0 {
			b.Ops, got.Ops = nil, nil
		}
		if err != nil || !reflect.DeepEqual(got, b) {
			t.Errorf("%+v came back as %+v, %v", b, got, err)
		}
		for n := range raw {
			if _, err := DecodeBatch(raw[:n]); !errkind.Is(err, errkind.Corrupt) {
				t.Errorf("%d bytes of %d: %v", n, len(raw), err)
			}
		}
		if _, err := DecodeBatch(append(raw, 0)); !errkind.Is(err, errkind.Corrupt) {
			t.Errorf("a byte too many: %v", err)
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	for _, b := range someBatches {
		f.Add(b.Append(nil))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := DecodeBatch(raw)
		if err != nil {
			return
		}
		if again, err := DecodeBatch(b.Append(nil)); err != nil || !reflect.DeepEqual(again, b) {
			t.Fatalf("%+v, then %+v, %v", b, again, err)
		}
	})
}

// TestFold: the fence counts from its place in the order, and each batch learns its own outcome.
func TestFold(t *testing.T) {
	put := func(epoch storage.Epoch, v string) Batch {
		return Batch{Epoch: epoch, Ops: []storage.Op{storage.Put("k", []byte(v))}}
	}
	s, errs := State{Set: New()}.Fold([]Batch{put(0, "a"), put(1, "early"), {Epoch: 2, Fence: true}, put(0, "late"),
		put(2, "b"), {Epoch: 1, Fence: true}})
	for i, fenced := range []bool{false, true, false, true, false, true} {
		if errors.Is(errs[i], storage.ErrFenced) != fenced || (errs[i] != nil) != fenced {
			t.Errorf("batch %d: %v", i, errs[i])
		}
	}
	if v, _ := s.Get("k"); string(v) != "b" || s.Epoch != 2 {
		t.Errorf("%q at epoch %d", v, s.Epoch)
	}
}

func someImage(t *testing.T, n int) (Image, []byte) {
	t.Helper()
	var ops []storage.Op
	for i := range n {
		ops = append(ops, storage.Put(fmt.Sprintf("k/%05d", i), bytes.Repeat([]byte{byte(i)}, i%300)))
	}
	image := Image{State: State{Set: New().Apply(ops), Epoch: 9}, Sequence: 77}
	var b bytes.Buffer
	if n, err := image.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatal(n, err)
	}
	return image, b.Bytes()
}

func TestImageRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 5000} {
		image, raw := someImage(t, n)
		got, err := ReadImage(bytes.NewReader(raw))
		if err != nil || got.Epoch != 9 || got.Sequence != 77 || got.Bytes() != image.Bytes() ||
			!reflect.DeepEqual(got.Scan("", "", 0), image.Scan("", "", 0)) {
			t.Errorf("%d records came back as %d, epoch %d, %v", n, got.Len(), got.Epoch, err)
		}
	}
}

// TestImageDamage: every cut, every flipped bit and bytes behind the end are found.
func TestImageDamage(t *testing.T) {
	_, raw := someImage(t, 20)
	for n := range raw {
		if _, err := ReadImage(bytes.NewReader(raw[:n])); !errkind.Is(err, errkind.Corrupt) {
			t.Fatalf("cut at %d: %v", n, err)
		}
		bad := bytes.Clone(raw)
		bad[n] ^= 1 << (n % 8)
		if _, err := ReadImage(bytes.NewReader(bad)); !errkind.Is(err, errkind.Corrupt) ||
			!strings.Contains(err.Error(), "offset") {
			t.Fatalf("a bit flipped at %d: %v", n, err)
		}
	}
	if _, err := ReadImage(bytes.NewReader(append(raw, 0))); !errkind.Is(err, errkind.Corrupt) {
		t.Errorf("a byte behind the end: %v", err)
	}
}
