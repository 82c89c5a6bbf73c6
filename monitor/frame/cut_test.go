package frame

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

func sent() *monitor.Event {
	return &monitor.Event{
		Timestamp: 1_700_000_000, ID: bytes.Repeat([]byte{7}, 16), Sequence: 4,
		Meta:      monitor.Meta{Labels: map[string]string{"a": "b"}},
		Pipelines: []*monitor.Ref{{Name: "p", Type: "Pipeline", APIVersion: "core/v2"}},
		Entity: &monitor.Entity{Class: monitor.ClassAgent, Meta: monitor.Meta{Name: "web-1", Namespace: "default"},
			Subscriptions: []string{"linux"}},
		Metrics: &monitor.Metrics{Handlers: []string{"tsdb"}, Points: []*monitor.Point{{Name: "load", Value: 0.5}}},
		Check: &monitor.Check{
			Meta: monitor.Meta{Name: "cpu", Namespace: "default"}, Command: "check-cpu", Interval: 10,
			Handlers: []string{"slack"}, TTL: 60,
			Duration: 0.25, Executed: 1_700_000_001, Issued: 1_699_999_999, Output: "ok\n", Status: 1, ProcessedBy: "web-1",
			Hooks: []*monitor.Hook{{HookConfig: monitor.HookConfig{Meta: monitor.Meta{Name: "ps"}}, Output: "1 init"}},
		},
	}
}

func TestCutAndWhole(t *testing.T) {
	var f Frame
	want := sent()
	if err := f.Cut(tagproto.Append(nil, want)); err != nil {
		t.Fatal(err)
	}
	if string(f.Check) != "cpu" || string(f.Output) != "ok\n" || f.Result != monitor.ResultOf(want) ||
		string(f.ProcessedBy) != "web-1" {
		t.Fatalf("%+v", f)
	}
	got, err := f.Event()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v\n got %+v\nwant %+v", err, got.Check, want.Check)
	}
}

// What changes in each run is not in Stable, and what the sender claims of the check's past counts for nothing.
func TestCutLeavesOutWhatChanges(t *testing.T) {
	var a, b Frame
	before, after := sent(), sent()
	c := after.Check
	c.Duration, c.Executed, c.Issued, c.Output, c.Status, c.ProcessedBy = 1, 2, 3, "broken", 2, "web-2"
	c.History, c.State, c.Occurrences = []monitor.Run{{Status: 1}}, "passing", 9
	c.IsSilenced, c.Silenced = true, []string{"x"}
	after.Timestamp++
	if a.Cut(tagproto.Append(nil, before)) != nil || b.Cut(tagproto.Append(nil, after)) != nil ||
		!bytes.Equal(a.Stable, b.Stable) {
		t.Fatalf("%q\n%q", a.Stable, b.Stable)
	}
	if e, err := b.Event(); err != nil || e.Check.IsSilenced || e.Check.History != nil || e.Check.State != "" {
		t.Fatalf("%v: %+v", err, e.Check)
	}
	c.Interval++
	if err := b.Cut(tagproto.Append(nil, after)); err != nil || bytes.Equal(a.Stable, b.Stable) {
		t.Fatal("another interval is another check")
	}
}

func TestCutAllocatesNothing(t *testing.T) {
	b := tagproto.Append(nil, sent())
	var f Frame
	if n := testing.AllocsPerRun(100, func() {
		if err := f.Cut(b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCutRefuses(t *testing.T) {
	check := protowire.AppendBytes(protowire.AppendTag(nil, eventCheck, protowire.BytesType), nil)
	for name, b := range map[string][]byte{
		"two checks":       append(bytes.Clone(check), check...),
		"an id of 3 bytes": protowire.AppendBytes(protowire.AppendTag(nil, eventID, protowire.BytesType), []byte("abc")),
		"cut":              tagproto.Append(nil, sent())[:40], "text": []byte("hello"),
	} {
		if err := new(Frame).Cut(b); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add(tagproto.Append(nil, sent()))
	f.Fuzz(func(t *testing.T, b []byte) {
		var frame, again Frame
		if frame.Cut(b) != nil {
			return
		}
		e, err := frame.Event()
		if err != nil {
			return
		}
		if err := again.Cut(tagproto.Append(nil, e)); err != nil ||
			frame.Result != again.Result && frame.Duration == frame.Duration {
			t.Fatalf("%v: %+v and %+v", err, frame.Result, again.Result)
		}
		_ = e.Validate()
	})
}

func BenchmarkCut(b *testing.B) {
	in := tagproto.Append(nil, sent())
	var f Frame
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Cut(in); err != nil {
			b.Fatal(err)
		}
	}
}
