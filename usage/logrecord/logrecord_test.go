package logrecord

import (
	"reflect"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
)

func sample(t testing.TB) *Record {
	p := usage.Product{Name: "seats", Kind: usage.Unique, Identity: []string{"user"}, Tags: []string{"team"}}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	p.Generation = 3
	return &Record{At: time.Unix(5, 7).UTC(), Products: []*usage.Product{&p}, Batch: batch.Batch{Producer: "p", Epoch: 1,
		Sequence: 2, Events: []usage.Event{{ID: "1", Source: "s", Tenant: "acme", Product: "seats", Time: 4,
			Identity: []usage.Field{{Name: "user", Value: "bob"}}, Tags: []usage.Field{{Name: "team", Value: "red"}}}}}}
}

// TestRoundTrip: what is read is what was appended, and definitions that come again are one value.
func TestRoundTrip(t *testing.T) {
	in := sample(t)
	in.Correction = &usage.Correction{ID: "c1", Kind: usage.Replace, Tenant: "acme", Product: "seats", IDs: []string{"1"},
		Reason: "test", Events: in.Events}
	var d Reader
	out, err := d.Read(Append(nil, in))
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Read(Append(nil, out))
	if err != nil {
		t.Fatal(err)
	}
	if again.Products[0] != out.Products[0] {
		t.Error("a definition that came again is another value")
	}
	if !reflect.DeepEqual(in.Events, out.Events) || !reflect.DeepEqual(in.Correction, again.Correction) ||
		!in.At.Equal(out.At) || in.Producer != out.Producer || !reflect.DeepEqual(in.Products, out.Products) {
		t.Errorf("got %+v, want %+v", out, in)
	}
	key := usage.NewKey([16]byte{1})
	first, err := in.Observe(key)
	if err != nil {
		t.Fatal(err)
	}
	second, err := again.Observe(key)
	if err != nil || first[0].Identity != second[0].Identity || first[0].ID != second[0].ID {
		t.Error("a replay observes something else", err)
	}
}

// FuzzRead: no input panics, and what is understood is written and read the same.
func FuzzRead(f *testing.F) {
	f.Add(Append(nil, sample(f)))
	f.Add([]byte{1, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var d Reader
		r, err := d.Read(data)
		if err != nil {
			return
		}
		if _, err := d.Read(Append(nil, r)); err != nil {
			t.Fatal(err)
		}
	})
}
