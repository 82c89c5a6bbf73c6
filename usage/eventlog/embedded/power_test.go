package embedded

import (
	"context"
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
	"corbel.dev/corbel/usage/eventlog"
)

const steps = 30

// powerLog stores record n in step n, spread over the partitions. Every third step commits what was read in the same
// breath, every ninth one trims.
type powerLog struct{ *Log }

func openPowerLog(fsys vfs.FS) (powertest.Store, error) {
	l, err := Open(Config{FS: fsys, Dir: "/log", Partitions: 3, SegmentBytes: 500})
	if err != nil {
		return nil, err
	}
	return powerLog{l}, nil
}

// Step implements powertest.Store. A record that was stored by a step that failed is there already.
func (p powerLog) Step(n int) error {
	ctx := context.Background()
	have, err := p.Have()
	if err != nil {
		return err
	}
	if have < n {
		_, err := p.Append(ctx, []eventlog.Entry{{Partition: n % 3, Data: fmt.Appendf(nil, "%d", n)}})
		if err != nil {
			return err
		}
	}
	if n%3 == 0 {
		b, _ := p.Bounds(ctx)
		if err := p.Commit(ctx, "counter", []eventlog.Position{{Partition: 0, Offset: b[0].Next,
			Note: fmt.Appendf(nil, "%d", n)}}); err != nil {
			return err
		}
	}
	if n%9 == 0 {
		b, _ := p.Bounds(ctx)
		_ = p.Trim(ctx, []uint64{b[0].Next - 1, b[1].Next - 1, b[2].Next - 1}) // what is not trimmed stays
	}
	return nil
}

// Have implements powertest.Store: it reads all that is left.
func (p powerLog) Have() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bounds, err := p.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	newest, from, left := 0, map[int]uint64{}, 0
	for i, b := range bounds {
		from[i] = b.First
		left += int(b.Next - b.First)
		if b.Next > 0 { // record k of partition i is number 3k+i, and partition 0 begins with number 3
			newest = max(newest, number(i, b.Next-1))
		}
	}
	r, err := p.Reader(from)
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }()
	for left > 0 {
		records, err := r.Next(ctx)
		if err != nil {
			return 0, err
		}
		for _, rec := range records {
			if want := fmt.Sprint(number(rec.Partition, rec.Offset)); string(rec.Data) != want {
				return 0, fmt.Errorf("partition %d, offset %d: %q, want %s", rec.Partition, rec.Offset, rec.Data, want)
			}
		}
		left -= len(records)
	}
	for i, b := range bounds {
		if newest > 2 && (b.Next == 0 || newest-number(i, b.Next-1) > 2) {
			return 0, fmt.Errorf("partition %d ends with %d, and %d is there", i, number(i, b.Next-1), newest)
		}
	}
	return newest, p.committed(ctx, newest)
}

// committed: the position is that of a step whose record is there.
func (p powerLog) committed(ctx context.Context, newest int) error {
	list, err := p.Committed(ctx, "counter")
	if err != nil {
		return err
	}
	at := 0
	for _, c := range list {
		if _, err := fmt.Sscan(string(c.Note), &at); err != nil || int(c.Offset) != at/3 {
			return fmt.Errorf("position %d with the note %q: %v", c.Offset, c.Note, err)
		}
	}
	if at > newest || newest-at > 5 {
		return fmt.Errorf("committed in step %d, and record %d is there", at, newest)
	}
	return nil
}

func number(partition int, offset uint64) int {
	if partition == 0 {
		offset++
	}
	return int(offset)*3 + partition
}

// TestPower: what was acknowledged or served is on the disk, whatever write or fsync failed, and whenever the process
// was killed before the power loss.
func TestPower(t *testing.T) {
	powertest.Run(t, powertest.Kind{Open: openPowerLog, Steps: steps})
}

func FuzzFrame(f *testing.F) {
	s := &state{next: []uint64{3, 0, 9}, groups: groups{}}
	s.groups.set("counter", []eventlog.Position{{Partition: 2, Offset: 4, Note: []byte("n")}})
	l := &Log{}
	one := &request{entries: []eventlog.Entry{{Partition: 1, Data: []byte("data")}}, offsets: make([]uint64, 1)}
	body := l.encode([]*request{one, {commit: &commit{"counter", []eventlog.Position{{Partition: 1, Offset: 1}}}}},
		[]uint64{3, 0, 9})
	f.Add(append(appendHead(nil, 7, s), body...))
	f.Add(append(appendHead(nil, 7, nil), body...))
	f.Add(appendHead(nil, 7, &state{next: make([]uint64, 2000)}))
	f.Fuzz(func(t *testing.T, content []byte) {
		mine := &Log{}
		err := mine.replay(1, content)
		if err != nil {
			if errkind.Of(err) != errkind.Corrupt {
				t.Fatal(err)
			}
			return
		}
		// What was understood is said again, and understood the same.
		next := append([]uint64(nil), mine.durable.segments[0].first...)
		again, err := readFrame(content)
		if err != nil || again.state == nil {
			t.Fatal(err)
		}
		r := &request{}
		keep := func(e eventlog.Entry, _ uint64) { r.entries = append(r.entries, e) }
		if err := again.entries(len(next), keep); err != nil {
			t.Fatal(err)
		}
		r.offsets = make([]uint64, len(r.entries))
		batch := []*request{r}
		if err := again.commits(len(next), func(c commit) { batch = append(batch, &request{commit: &c}) }); err != nil {
			t.Fatal(err)
		}
		first, _ := readFrame(content)
		other := &Log{}
		said := append(appendHead(nil, again.at, first.state), (&Log{}).encode(batch, next)...)
		if err := other.replay(1, said); err != nil {
			t.Fatal(err)
		}
		a, b := appendHead(nil, mine.durable.at, &mine.durable.state), appendHead(nil, other.durable.at, &other.durable.state)
		if string(a) != string(b) {
			t.Fatalf("%q\n%q", a, b)
		}
	})
}
