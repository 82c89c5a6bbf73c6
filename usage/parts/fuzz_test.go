package parts

import (
	"context"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/logrecord"
)

// single replicates to one machine.
type single struct{ *definitions.Definitions }

func (s single) Propose(_ context.Context, cmd []byte) (any, error) {
	return s.ApplyBatch([][]byte{cmd})[0], nil
}

// FuzzMethods: nothing that another server asks for ends this one, or the part that it leads.
func FuzzMethods(f *testing.F) {
	product := &usage.Product{Name: "bytes", Kind: usage.Sum, Generation: 1}
	if err := product.Complete(); err != nil {
		f.Fatal(err)
	}
	rec := logrecord.Append(nil, &logrecord.Record{At: time.Unix(1000, 0), Products: []*usage.Product{product},
		Batch: batch.Batch{Events: []usage.Event{{Tenant: "t", Product: "bytes", ID: "1", Source: "s", Time: 1e12,
			HasValue: true}}}})
	methods := []string{MethodPing, MethodStatus, MethodFeed, MethodRead, MethodAnew, MethodWhole, MethodKeys}
	head := func(part string, numbers ...uint64) []byte {
		b := pack.String(nil, part)
		for _, n := range numbers {
			b = pack.Uint(b, n)
		}
		return b
	}
	for _, seed := range []struct {
		method uint8
		req    []byte
	}{
		{0, pack.String(nil, "b")}, {1, head("b", 1)}, {1, head("a", 1<<63)},
		{2, appendRecords(head("b", 1, 0), [][]byte{rec})},
		{2, appendRecords(head("b", 1, 1<<63), [][]byte{rec, nil})}, {3, head("b", 0, 1)}, {3, head("b", 1<<63, 0)},
		{4, head("b", 2, anewBegin, 7)}, {4, append(head("b", 2, anewRecords, 7, 1), pack.Bytes(nil, rec)...)},
		{4, append(head("b", 2, anewState, 0), pack.Bytes(nil, rec)...)}, {4, head("b", 2, anewEnd, 8)},
		{4, head("b", 2, anewBegin, 1<<64-1)},
		{4, pack.Bytes(head("b", 2, anewPacked), packed(append(pack.Uint(pack.Uint(nil, anewRecords), 7),
			appendRecords(nil, [][]byte{rec})...)))}, {4, pack.Bytes(head("b", 2, anewPacked), rec)},
		{4, pack.Bytes(head("b", 2, anewPacked), packed(pack.Bytes(pack.Uint(pack.Uint(nil, anewState), 0), rec)))},
		{5, head("b", 1)}, {5, head("../x", 1)},
	} {
		f.Add(seed.method, seed.req)
	}
	f.Fuzz(func(t *testing.T, method uint8, req []byte) {
		defs := definitions.New()
		defs.Use(single{defs})
		s := &server{id: "a", fs: vfs.NewMem(), defs: defs}
		signal := counter.NewSignal(time.Now())
		p, err := New(Config{Self: "a", Definitions: defs, Open: s.open(signal), Copies: 1,
			Call:   func(context.Context, string, string, []byte) ([]byte, error) { return nil, errNoPart },
			Voters: func() []string { return []string{"a", "b"} }, Leads: func() bool { return true }}, signal)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := defs.Do(t.Context(), definitions.Command{Owners: []string{"a", "b"}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		defer func() { cancel(); <-done }()
		polltest.Until(t, func() bool { c := p.Local("a"); return c != nil && c.Leads() }, "the part of this server")
		b, err := p.open("b") // as a copy has it
		if err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, b.Counter.Warm, "the other part")
		within, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		name := methods[int(method)%len(methods)]
		if name == MethodAnew { // the steps after the first one need it
			_, _ = p.Methods()[name](within, head("b", 2, anewBegin, 7))
		}
		_, err = p.Methods()[name](within, req)
		if errkind.Is(err, errkind.Internal) || within.Err() != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c := p.Local("a"); name != MethodStatus && (c == nil || !c.Leads()) { // a newer epoch ends a lead
			t.Fatalf("%s: this server leads its part no more", name)
		}
	})
}

// FuzzRecords: records are read as they were written, or refused.
func FuzzRecords(f *testing.F) {
	f.Add(appendRecords(nil, [][]byte{[]byte("x"), nil, make([]byte, 300)}))
	f.Add(pack.Uint(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := records(pack.Read(b))
		if err != nil {
			return
		}
		again, err := records(pack.Read(appendRecords(nil, list)))
		if err != nil || !slices.EqualFunc(list, again, slices.Equal) {
			t.Fatalf("%x became %x, %v", list, again, err)
		}
	})
}
