package tagproto

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

type leaf struct {
	Name  string            `pb:"1"`
	Tags  map[string]string `pb:"2"`
	Extra Extra
}

type tree struct {
	leaf    `pb:"1"`
	Text    string   `pb:"2"`
	Raw     []byte   `pb:"3"`
	Yes     bool     `pb:"4"`
	Small   int32    `pb:"5"`
	Big     int64    `pb:"6"`
	Count   uint32   `pb:"7"`
	Rate    float64  `pb:"8"`
	Half    float32  `pb:"9"`
	Leaves  []*leaf  `pb:"10"`
	Values  []leaf   `pb:"11"`
	Names   []string `pb:"12"`
	Numbers []int64  `pb:"13"`
	Below   *tree    `pb:"200"`
	Local   int
	Extra   Extra
}

func full() *tree {
	return &tree{
		leaf: leaf{Name: "in", Tags: map[string]string{"a": "1", "b": ""}}, Text: "é", Raw: []byte{0, 255}, Yes: true,
		Small: -5, Big: -1 << 62,
		Count: 1<<32 - 1, Rate: -0.5, Half: 1.25, Leaves: []*leaf{{Name: "x"}, {}},
		Values: []leaf{{Name: strings.Repeat("long", 100)}},
		Names:  []string{"", "n"}, Numbers: []int64{0, -1, 300}, Below: &tree{Text: "deep"},
	}
}

func TestRoundTrip(t *testing.T) {
	want := full()
	var got tree
	b := Append([]byte("before"), want)
	if !bytes.HasPrefix(b, []byte("before")) {
		t.Fatal("Append overwrote what was there")
	}
	if err := Unmarshal(b[6:], &got); err != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("%v\n got %+v\nwant %+v", err, got, *want)
	}
	if again := Append(nil, &got); !bytes.Equal(again, b[6:]) {
		t.Fatal("two writings of one value differ")
	}
}

// What a newer sender knows is kept and written back, also when its wire type is not the field's.
func TestExtraFieldsAreKept(t *testing.T) {
	in := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "n")
	extra := protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 5)
	extra = protowire.AppendVarint(protowire.AppendTag(extra, 1, protowire.VarintType), 9)
	var l leaf
	if err := Unmarshal(append(bytes.Clone(in), extra...), &l); err != nil || l.Name != "n" {
		t.Fatal(err, l)
	}
	if got := Append(nil, &l); !bytes.Equal(got, append(in, extra...)) {
		t.Fatalf("% x", got)
	}
}

func TestNumbersMayComeUnpacked(t *testing.T) {
	var b []byte
	for _, n := range []uint64{7, 8} {
		b = protowire.AppendVarint(protowire.AppendTag(b, 13, protowire.VarintType), n)
	}
	var got tree
	if err := Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got.Numbers, []int64{7, 8}) {
		t.Fatal(err, got.Numbers)
	}
}

func TestHostileInput(t *testing.T) {
	deep := []byte{}
	for range Depth + 2 {
		deep = protowire.AppendBytes(protowire.AppendTag(nil, 200, protowire.BytesType), deep)
	}
	empties := bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 11, protowire.BytesType), nil), 20000)
	text := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte{0xff})
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"too deep", deep, ErrDeep}, {"a list of nothing", empties, ErrGreedy}, {"not UTF-8", text, ErrDamaged},
		{"cut", Append(nil, full())[:20], ErrDamaged}, {"number 0", []byte{0, 0}, ErrDamaged},
	} {
		if err := Unmarshal(c.in, new(tree)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(Append(nil, full()))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, again tree
		if Unmarshal(b, &got) != nil {
			return
		}
		out := Append(nil, &got)
		if err := Unmarshal(out, &again); err != nil {
			t.Fatalf("what was written is not readable: %v", err)
		}
		if !bytes.Equal(out, Append(nil, &again)) { // not DeepEqual: NaN
			t.Fatal("a value changed on its way")
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	in := full()
	buf := Append(nil, in)
	b.ReportAllocs()
	for b.Loop() {
		var got tree
		if err := Unmarshal(buf, &got); err != nil {
			b.Fatal(err)
		}
		buf = Append(buf[:0], &got)
	}
}
