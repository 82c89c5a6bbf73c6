package batch

import (
	"fmt"
	"reflect"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"pgregory.net/rapid"
)

// TestRoundTrip is section 3's `POST /v1/usage/batch`: what is written is read.
func TestRoundTrip(t *testing.T) {
	text := rapid.StringN(0, 8, 20)
	fields := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) usage.Field {
		return usage.Field{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")}
	}), 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		b := &Batch{Producer: text.Draw(t, "producer"), Epoch: rapid.Uint64().Draw(t, "epoch"),
			Sequence: rapid.Uint64().Draw(t, "sequence")}
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			b.Events = append(b.Events, usage.Event{ID: text.Draw(t, "id"), Source: text.Draw(t, "source"),
				Tenant: text.Draw(t, "tenant"), Product: text.Draw(t, "product"), Time: rapid.Int64().Draw(t, "time"),
				Identity: fields.Draw(t, "identity"), Tags: fields.Draw(t, "tags"), HasValue: rapid.Bool().Draw(t, "has value"),
				Value: usage.Quantity{Hi: rapid.Int64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")}})
		}
		got, err := Read(Append(nil, b))
		if err != nil || fmt.Sprint(*got) != fmt.Sprint(*b) {
			t.Fatalf("%v, %v\nwant %v", got, err, *b)
		}
	})
}

func TestReadRefuses(t *testing.T) {
	good := Append(nil, some(3))
	for n := range good {
		if _, err := Read(good[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are taken", n, len(good))
		}
	}
	if _, err := Read(append(good, 0)); err == nil {
		t.Error("what is behind the batch is taken")
	}
	if _, err := Read(Append(nil, some(usage.MaxEvents+1))); errkind.Of(err) != errkind.TooLarge {
		t.Errorf("too many events: %v", err)
	}
}

func some(n int) *Batch {
	b := &Batch{Producer: "agent-1", Epoch: 1, Sequence: 2}
	for i := range n {
		b.Events = append(b.Events, usage.Event{Tenant: "acme", Product: "hosts", Source: "agent-1",
			Time: 1774746000123456789 + int64(i), Identity: []usage.Field{{Name: "host", Value: fmt.Sprintf("i-%08x", i)}},
			Tags: []usage.Field{{Name: "team", Value: "core"}}})
	}
	return b
}

func FuzzRead(f *testing.F) {
	f.Add(Append(nil, some(2)))
	f.Add(Append(nil, &Batch{Events: []usage.Event{{ID: "1", Value: usage.Quantity{Hi: 5}, HasValue: true}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Read(data)
		if err != nil {
			return
		}
		again, err := Read(Append(nil, b))
		if err != nil || !reflect.DeepEqual(again, b) {
			t.Fatalf("%+v is read again as %+v, %v", b, again, err)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	data := Append(nil, some(1000))
	b.ReportAllocs()
	b.ReportMetric(float64(len(data))/1000, "B/event")
	for i := 0; i < b.N; i += 1000 {
		if _, err := Read(data); err != nil {
			b.Fatal(err)
		}
	}
}
