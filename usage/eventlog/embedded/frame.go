package embedded

import (
	"maps"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/eventlog"
)

// A frame of the journal is what one fsync made durable, in the form of kit/pack:
//
//	version, at (Unix nanoseconds)
//	the state before the frame, in the first frame of each segment; an empty record in the others
//	entries: count, then partition, offset, data
//	commits: count, then group, and positions: count, then partition, offset, note
//
// State is: the next offset of each partition, and the groups with their positions.
const version = 1

// groups are the positions that were committed, by group and partition.
type groups map[string]map[int]eventlog.Position

func (g groups) set(group string, positions []eventlog.Position) {
	if g[group] == nil {
		g[group] = map[int]eventlog.Position{}
	}
	for _, p := range positions {
		g[group][p.Partition] = p
	}
}

func (g groups) list(group string) []eventlog.Position {
	list := make([]eventlog.Position, 0, len(g[group]))
	for _, p := range slices.Sorted(maps.Keys(g[group])) {
		list = append(list, g[group][p])
	}
	return list
}

// commit is what a group committed at once.
type commit struct {
	group     string
	positions []eventlog.Position
}

// state is what a segment's first frame says about all before it.
type state struct {
	next   []uint64
	groups groups
}

func appendHead(b []byte, at int64, s *state) []byte {
	b = pack.Int(pack.Uint(b, version), at)
	b, mark := pack.Begin(b)
	if s != nil {
		b = pack.Uint(b, uint64(len(s.next)))
		for _, n := range s.next {
			b = pack.Uint(b, n)
		}
		b = pack.Uint(b, uint64(len(s.groups)))
		for _, name := range slices.Sorted(maps.Keys(s.groups)) {
			b = appendCommit(b, commit{name, s.groups.list(name)})
		}
	}
	return pack.End(b, mark)
}

func appendEntry(b []byte, e eventlog.Entry, offset uint64) []byte {
	return pack.Bytes(pack.Uint(pack.Uint(b, uint64(e.Partition)), offset), e.Data)
}

func appendCommit(b []byte, c commit) []byte {
	b = pack.Uint(pack.String(b, c.group), uint64(len(c.positions)))
	for _, p := range c.positions {
		b = pack.Bytes(pack.Uint(pack.Uint(b, uint64(p.Partition)), p.Offset), p.Note)
	}
	return b
}

var errFrame = errkind.New(errkind.Corrupt, "a frame of the log does not make sense, though its checksum is right")

// frameReader takes a frame apart.
type frameReader struct {
	r     *pack.Reader
	at    int64
	state *state // nil where the frame has none
}

func readFrame(content []byte) (*frameReader, error) {
	f := &frameReader{r: pack.Read(content)}
	if v := f.r.Uint(); f.r.Err() == nil && v != version {
		return nil, errkind.Errorf(errkind.Corrupt, "the log has the form %d: only %d is known here", v, version)
	}
	f.at = f.r.Int()
	inner := f.r.Record()
	if inner.More() {
		f.state = &state{groups: groups{}}
		for range inner.Count() {
			f.state.next = append(f.state.next, inner.Uint())
		}
		for range inner.Count() {
			c := readCommit(inner, len(f.state.next))
			if c.group == "" {
				return nil, errFrame
			}
			f.state.groups.set(c.group, c.positions)
		}
		if n := len(f.state.next); n == 0 || n > eventlog.MaxPartitions {
			return nil, errFrame
		}
	}
	f.r.Merge(inner)
	if f.r.Err() != nil {
		return nil, errFrame
	}
	return f, nil
}

// entries gives each entry with its offset.
func (f *frameReader) entries(partitions int, each func(e eventlog.Entry, offset uint64)) error {
	for range f.r.Count() {
		p, offset, data := f.r.Uint(), f.r.Uint(), f.r.Bytes()
		if f.r.Err() != nil || p >= uint64(partitions) || len(data) == 0 {
			return errFrame
		}
		each(eventlog.Entry{Partition: int(p), Data: data}, offset)
	}
	return nil
}

// commits gives each commit; it follows entries.
func (f *frameReader) commits(partitions int, each func(c commit)) error {
	for range f.r.Count() {
		c := readCommit(f.r, partitions)
		if f.r.Err() != nil || c.group == "" {
			return errFrame
		}
		each(c)
	}
	return nil
}

// readCommit reads a commit; one that makes no sense has no group.
func readCommit(r *pack.Reader, partitions int) commit {
	c := commit{group: r.String()}
	for range r.Count() {
		p := eventlog.Position{}
		n := r.Uint()
		p.Offset, p.Note = r.Uint(), slices.Clone(r.Bytes())
		if r.Err() != nil || n >= uint64(partitions) {
			return commit{}
		}
		p.Partition = int(n)
		c.positions = append(c.positions, p)
	}
	return c
}
