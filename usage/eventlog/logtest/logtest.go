// Package logtest is the conformance kit of the log of usage events: what every engine of usage/eventlog must do.
package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/eventlog"
)

// Partitions is how many a log has that is judged.
const Partitions = 4

// Engine is what is judged.
type Engine struct {
	// Open opens the log of a name: empty at first, and later what was left when it was closed.
	Open func(t *testing.T, name string) eventlog.Log
	// TrimsAtOnce says that Trim has removed all it was told when it returns.
	TrimsAtOnce bool
}

// patience is how long anything may take.
const patience = 30 * time.Second

// Run judges an engine.
func Run(t *testing.T, e Engine) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, e Engine)
	}{
		{"append and read", appendAndRead}, {"wait", wait}, {"assign", assign}, {"out of range", outOfRange},
		{"positions", positions}, {"refused", refused}, {"trim", trim}, {"since", since}, {"janitor", janitor},
		{"large", large}, {"many", many},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

// log is a log under test, with what was appended to it.
type log struct {
	eventlog.Log
	t    *testing.T
	e    Engine
	name string
	mu   sync.Mutex
	have [Partitions][]eventlog.Record // Data and Offset, in the order in which it was acknowledged
}

func open(t *testing.T, e Engine) *log {
	l := &log{t: t, e: e, name: t.Name()}
	l.Log = e.Open(t, l.name)
	t.Cleanup(func() { _ = l.Close() })
	if got := l.Partitions(); got != Partitions {
		t.Fatalf("%d partitions, want %d", got, Partitions)
	}
	return l
}

func (l *log) reopen() {
	l.t.Helper()
	if err := l.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.Log = l.e.Open(l.t, l.name)
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// append stores texts, each in the partition beside it.
func (l *log) append(entries ...eventlog.Entry) []uint64 {
	l.t.Helper()
	offsets, err := l.Append(limited(l.t), entries)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range entries {
		l.have[e.Partition] = append(l.have[e.Partition],
			eventlog.Record{Partition: e.Partition, Offset: offsets[i], Data: bytes.Clone(e.Data)})
	}
	return offsets
}

func text(partition int, format string, args ...any) eventlog.Entry {
	return eventlog.Entry{Partition: partition, Data: fmt.Appendf(nil, format, args...)}
}

func (l *log) reader(from map[int]uint64) eventlog.Reader {
	l.t.Helper()
	r, err := l.Reader(from)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = r.Close() })
	return r
}

// read reads n records, by partition.
func read(t *testing.T, r eventlog.Reader, n int) (got [Partitions][]eventlog.Record) {
	t.Helper()
	ctx := limited(t)
	for n > 0 {
		records, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("%d records before the end: %v", n, err)
		}
		for _, rec := range records {
			rec.Data = bytes.Clone(rec.Data)
			if rec.At.IsZero() || time.Since(rec.At).Abs() > time.Hour {
				t.Fatalf("it was stored at %v", rec.At)
			}
			got[rec.Partition] = append(got[rec.Partition], rec)
		}
		n -= len(records)
	}
	if n < 0 {
		t.Fatalf("%d records more than were appended", -n)
	}
	return got
}

// same compares what was read with what is there from an offset on.
func (l *log) same(p int, from uint64, got []eventlog.Record) {
	l.t.Helper()
	want := slices.DeleteFunc(slices.Clone(l.have[p]), func(r eventlog.Record) bool { return r.Offset < from })
	if len(got) != len(want) {
		l.t.Fatalf("partition %d from %d on has %d records, want %d", p, from, len(got), len(want))
	}
	for i := range want {
		if got[i].Offset != want[i].Offset || !bytes.Equal(got[i].Data, want[i].Data) {
			l.t.Fatalf("partition %d: %d is %.60q, want %d and %.60q", p, got[i].Offset, got[i].Data, want[i].Offset,
				want[i].Data)
		}
	}
}

// bounds returns those of a log that must tell them.
func (l *log) bounds() []eventlog.Bound {
	l.t.Helper()
	b, err := l.Bounds(limited(l.t))
	if err != nil || len(b) != Partitions {
		l.t.Fatal(b, err)
	}
	return b
}

func everything() map[int]uint64 { return map[int]uint64{0: 0, 1: 0, 2: 0, 3: 0} }

func appendAndRead(t *testing.T, e Engine) {
	l := open(t, e)
	for p, b := range l.bounds() {
		if b.First != b.Next {
			t.Fatalf("a new log has records in partition %d: %v", p, b)
		}
	}
	n := 0
	for i := range 30 {
		entries := []eventlog.Entry{text(i%3, "first of %d", i), text(1, "second of %d", i), text(i%3, "third of %d", i)}
		l.append(entries...)
		n += len(entries)
	}
	for range 2 { // and when it is opened again
		got := read(t, l.reader(everything()), n)
		for p := range Partitions {
			l.same(p, 0, got[p])
		}
		for p, b := range l.bounds() {
			last := uint64(0)
			if k := len(l.have[p]); k > 0 {
				last = l.have[p][k-1].Offset + 1
			}
			if b.First != 0 || b.Next != last {
				t.Fatalf("partition %d is %v, want 0 to %d", p, b, last)
			}
		}
		middle := l.have[1][len(l.have[1])/2].Offset
		l.same(1, middle, read(t, l.reader(map[int]uint64{1: middle}), len(l.have[1])-len(l.have[1])/2)[1])
		l.reopen()
	}
	l.append(text(2, "after it was opened again"))
	last := l.have[2][len(l.have[2])-1]
	l.same(2, last.Offset, read(t, l.reader(map[int]uint64{2: last.Offset}), 1)[2])
}

// wait: a reader at the end gets what comes next, and gives up with its context.
func wait(t *testing.T, e Engine) {
	l := open(t, e)
	r := l.reader(everything())
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if records, err := r.Next(short); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("an empty log gives %v, %v", records, err)
	}
	for i := range 5 {
		done := make(chan [Partitions][]eventlog.Record)
		go func() {
			defer close(done)
			records, err := r.Next(limited(t))
			if err != nil {
				t.Error(err)
				return
			}
			got := [Partitions][]eventlog.Record{}
			for _, rec := range records {
				rec.Data = bytes.Clone(rec.Data)
				got[rec.Partition] = append(got[rec.Partition], rec)
			}
			done <- got
		}()
		at := l.append(text(i%Partitions, "number %d", i))
		l.same(i%Partitions, at[0], (<-done)[i%Partitions])
	}
}

func assign(t *testing.T, e Engine) {
	l := open(t, e)
	for i := range 10 {
		l.append(text(0, "a%d", i), text(1, "b%d", i), text(2, "c%d", i))
	}
	r := l.reader(map[int]uint64{0: 0})
	l.same(0, 0, read(t, r, 10)[0])
	if err := r.Assign(map[int]uint64{1: 4}); err != nil { // beside the one that is at its end
		t.Fatal(err)
	}
	got := read(t, r, 6)
	l.same(1, 4, got[1])
	if len(got[0]) > 0 {
		t.Fatal("a partition was read twice:", got[0])
	}
	r.Drop(0)
	l.append(text(0, "nobody's"), text(1, "the reader's"))
	got = read(t, r, 1)
	l.same(1, 10, got[1])
	if err := r.Assign(map[int]uint64{1: 8, 2: 10}); err != nil { // back, and another one at its end
		t.Fatal(err)
	}
	l.same(1, 8, read(t, r, 3)[1])
	l.append(text(2, "the reader's, too"))
	l.same(2, 10, read(t, r, 1)[2])
	if err := r.Assign(map[int]uint64{Partitions: 0}); errkind.Of(err) != errkind.Invalid {
		t.Fatal("a partition that is not there:", err)
	}
	if _, err := l.Reader(map[int]uint64{-1: 0}); errkind.Of(err) != errkind.Invalid {
		t.Fatal("a partition that is not there:", err)
	}
}

// outOfRange: who asks for what is not there is told, and the other partitions are not the worse for it.
func outOfRange(t *testing.T, e Engine) {
	l := open(t, e)
	l.append(text(0, "only"), text(1, "one"))
	r := l.reader(map[int]uint64{0: 7})
	_, err := r.Next(limited(t))
	var lost *eventlog.OutOfRange
	if !errors.As(err, &lost) || lost.Partition != 0 || lost.Offset != 7 || errkind.Of(err) != errkind.NotFound {
		t.Fatal("an offset that never was:", err)
	}
	if _, err := r.Next(limited(t)); !errors.As(err, &lost) {
		t.Fatal("asked again:", err)
	}
	if err := r.Assign(map[int]uint64{0: 0, 1: 0}); err != nil {
		t.Fatal(err)
	}
	got := read(t, r, 2)
	l.same(0, 0, got[0])
	l.same(1, 0, got[1])
}

func positions(t *testing.T, e Engine) {
	l := open(t, e)
	for range 5 {
		l.append(text(0, "x"), text(2, "y"))
	}
	commit := func(group string, list ...eventlog.Position) {
		t.Helper()
		if err := l.Commit(limited(t), group, list); err != nil {
			t.Fatal(err)
		}
	}
	check := func(group string, want ...eventlog.Position) {
		t.Helper()
		got, err := l.Committed(limited(t), group)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, func(a, b eventlog.Position) int { return a.Partition - b.Partition })
		if fmt.Sprintf("%v", got) != fmt.Sprintf("%v", want) {
			t.Fatalf("%s: %v, want %v", group, got, want)
		}
	}
	note := bytes.Repeat([]byte{0, 255, 'n', '\n'}, eventlog.MaxNoteBytes/4)
	check("counter")
	commit("counter", eventlog.Position{Partition: 2, Offset: 3, Note: note}, eventlog.Position{Partition: 0, Offset: 5})
	commit("archive", eventlog.Position{Partition: 0, Offset: 1, Note: []byte("a")})
	for range 2 {
		check("counter", eventlog.Position{Partition: 0, Offset: 5}, eventlog.Position{Partition: 2, Offset: 3, Note: note})
		check("archive", eventlog.Position{Partition: 0, Offset: 1, Note: []byte("a")})
		l.reopen()
	}
	commit("counter", eventlog.Position{Partition: 0, Offset: 2}) // back: a range is counted again
	check("counter", eventlog.Position{Partition: 0, Offset: 2}, eventlog.Position{Partition: 2, Offset: 3, Note: note})
}

func refused(t *testing.T, e Engine) {
	l := open(t, e)
	for _, test := range []struct {
		what    string
		kind    errkind.Kind
		entries []eventlog.Entry
	}{
		{"nothing", errkind.Invalid, nil},
		{"no data", errkind.Invalid, []eventlog.Entry{{Partition: 0}}},
		{"below the partitions", errkind.Invalid, []eventlog.Entry{text(-1, "x")}},
		{"above the partitions", errkind.Invalid, []eventlog.Entry{text(0, "x"), text(Partitions, "x")}},
		{"a large entry", errkind.TooLarge, []eventlog.Entry{{Data: make([]byte, eventlog.MaxEntryBytes+1)}}},
		{"a large append", errkind.TooLarge,
			slices.Repeat([]eventlog.Entry{{Data: make([]byte, eventlog.MaxEntryBytes)}}, 33)},
	} {
		if _, err := l.Append(limited(t), test.entries); errkind.Of(err) != test.kind {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	for _, test := range []struct {
		what, group string
		kind        errkind.Kind
		list        []eventlog.Position
	}{
		{"no group", "", errkind.Invalid, []eventlog.Position{{}}},
		{"no position", "g", errkind.Invalid, nil},
		{"no such partition", "g", errkind.Invalid, []eventlog.Position{{Partition: Partitions}}},
		{"a long note", "g", errkind.TooLarge, []eventlog.Position{{Note: make([]byte, eventlog.MaxNoteBytes+1)}}},
		{"ahead of the log", "g", errkind.Invalid, []eventlog.Position{{Offset: 1}}},
	} {
		if err := l.Commit(limited(t), test.group, test.list); errkind.Of(err) != test.kind {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Append(over, []eventlog.Entry{text(0, "late")}); !errors.Is(err, context.Canceled) ||
		errkind.Of(err) == errkind.Unknown {
		t.Error("nothing is begun for who has gone:", err)
	}
	for p, b := range l.bounds() {
		if b.Next != 0 {
			t.Errorf("something was stored in partition %d: %v", p, b)
		}
	}
}

func trim(t *testing.T, e Engine) {
	l := open(t, e)
	for i := range 60 {
		l.append(text(0, "%d: %0200d", i, i), text(1, "%d", i))
	}
	slow := l.reader(map[int]uint64{0: 0})
	below := []uint64{40, 30, 0, 0}
	if err := l.Trim(limited(t), below); err != nil {
		t.Fatal(err)
	}
	bounds := l.bounds()
	for p, b := range bounds {
		if b.First > below[p] {
			t.Fatalf("partition %d: what is needed went: %v, needed from %d on", p, b, below[p])
		}
	}
	if bounds[0].First == 0 || e.TrimsAtOnce && bounds[0].First != 40 {
		t.Fatalf("nothing went: %v", bounds)
	}
	got := read(t, l.reader(map[int]uint64{0: bounds[0].First}), 60-int(bounds[0].First))
	l.same(0, bounds[0].First, got[0])
	if bounds[1].First > 0 {
		var lost *eventlog.OutOfRange
		if _, err := l.reader(map[int]uint64{1: 0}).Next(limited(t)); !errors.As(err, &lost) || lost.Partition != 1 {
			t.Fatal("what was trimmed is asked for:", err)
		}
	}
	// Who was reading may have had some of it in hand; then it is told.
	var err error
	for want := uint64(0); err == nil && want < 60; {
		var records []eventlog.Record
		records, err = slow.Next(limited(t))
		for _, r := range records {
			if r.Offset != want {
				t.Fatalf("record %d follows %d", r.Offset, want)
			}
			want++
		}
	}
	var lost *eventlog.OutOfRange
	if err != nil && !errors.As(err, &lost) {
		t.Fatal(err)
	}
	all := []uint64{60, 60, 0, 0}
	if err := l.Trim(limited(t), all); err != nil {
		t.Fatal(err)
	}
	if err := l.Trim(limited(t), below); err != nil {
		t.Fatal("a trim that is behind:", err)
	}
	l.reopen()
	if at := l.append(text(0, "next"), text(1, "next")); at[0] != 60 || at[1] != 60 {
		t.Fatal("offsets are given twice:", at)
	}
	if err := l.Trim(limited(t), []uint64{1}); errkind.Of(err) != errkind.Invalid {
		t.Fatal("too few offsets:", err)
	}
}

func since(t *testing.T, e Engine) {
	l := open(t, e)
	l.append(text(0, "before"), text(2, "before"))
	l.append(text(0, "after"))
	for _, at := range []time.Time{time.Unix(0, 0), time.Now().Add(-time.Hour)} {
		offsets, err := l.Since(limited(t), at)
		if err != nil || !slices.Equal(offsets, make([]uint64, Partitions)) {
			t.Fatal(offsets, err)
		}
	}
	read := read(t, l.reader(map[int]uint64{0: 0}), 2)[0]
	offsets, err := l.Since(limited(t), read[1].At)
	if err != nil || offsets[0] > 1 {
		t.Fatal("a record of that instant is left out:", offsets, err)
	}
	if offsets, err = l.Since(limited(t), time.Now().Add(time.Hour)); err != nil || offsets[0] > 2 || offsets[2] > 1 {
		t.Fatal("beyond the end:", offsets, err)
	}
}

// janitor: what a group has not read stays.
func janitor(t *testing.T, e Engine) {
	l := open(t, e)
	for i := range 60 {
		l.append(text(0, "%d: %0200d", i, i))
	}
	j := eventlog.Janitor{Log: l, Groups: []string{"counter", "archive"}, Keep: time.Nanosecond}
	trimmed := func() uint64 {
		t.Helper()
		if err := j.Trim(limited(t)); err != nil {
			t.Fatal(err)
		}
		return l.bounds()[0].First
	}
	commit := func(group string, offset uint64) {
		t.Helper()
		if err := l.Commit(limited(t), group, []eventlog.Position{{Partition: 0, Offset: offset}}); err != nil {
			t.Fatal(err)
		}
	}
	commit("counter", 60)
	if got := trimmed(); got != 0 {
		t.Fatalf("a group has not begun, and what stands before %d went", got)
	}
	commit("archive", 30)
	if got := trimmed(); got > 30 || got == 0 {
		t.Fatalf("what stands before %d went, and one group is at 30", got)
	}
	before := l.bounds()[0].First
	commit("archive", 60)
	j.Keep = time.Hour
	if got := trimmed(); got != before {
		t.Fatalf("what stands before %d went, though it is younger than what is kept", got)
	}
	j.Groups = nil
	if err := j.Trim(limited(t)); err == nil {
		t.Fatal("nobody says what is needed, and it trims")
	}
}

func large(t *testing.T, e Engine) {
	l := open(t, e)
	rng := rand.New(rand.NewPCG(1, 2))
	n := 0
	for _, size := range []int{1, eventlog.MaxEntryBytes, 300_000, 2, eventlog.MaxEntryBytes} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		l.append(eventlog.Entry{Partition: 1, Data: data}, text(3, "beside it"))
		n += 2
	}
	got := read(t, l.reader(everything()), n)
	l.same(1, 0, got[1])
	l.same(3, 0, got[3])
}

// many: appenders and readers side by side.
func many(t *testing.T, e Engine) {
	l := open(t, e)
	const appenders, appends = 8, 40
	readers := make([]chan [Partitions][]eventlog.Record, 3)
	for i := range readers {
		r := l.reader(everything())
		readers[i] = make(chan [Partitions][]eventlog.Record, 1)
		go func() {
			defer close(readers[i])
			readers[i] <- read(t, r, appenders*appends*2)
		}()
	}
	var wg sync.WaitGroup
	for a := range appenders {
		wg.Go(func() {
			for i := range appends {
				l.append(text((a+i)%Partitions, "%d %d", a, i), text(i%Partitions, "%d %d beside", a, i))
			}
		})
	}
	wg.Wait()
	for p := range Partitions {
		slices.SortFunc(l.have[p], func(a, b eventlog.Record) int { return int(a.Offset) - int(b.Offset) })
	}
	for _, done := range readers {
		got := <-done
		for p := range Partitions {
			l.same(p, 0, got[p])
			inOrder(t, got[p])
		}
	}
}

// inOrder: what one appender said stands in the order in which it said it.
func inOrder(t *testing.T, records []eventlog.Record) {
	t.Helper()
	newest := map[int]int{}
	for _, r := range records {
		var a, i int
		if _, err := fmt.Sscanf(string(r.Data), "%d %d", &a, &i); err != nil {
			t.Fatal(err)
		}
		if i < newest[a] {
			t.Fatalf("appender %d said %d after %d", a, i, newest[a])
		}
		newest[a] = i
	}
}
