package vfs

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"corbel.dev/corbel/kit/pack"
)

// The kinds of records in the journal of a Power.
const (
	powerNew    = iota + 1 // a file is about to differ from the disk: id, path, size on the disk
	powerSave              // old bytes: id, off, old
	powerAgain             // bytes that a failed Sync dropped are written again: id, off, size
	powerSynced            // all of the file is on the disk: id, size
	powerFailed            // a Sync failed: id, size
	powerCreate            // path is about to appear
	powerRemove            // path is about to go; link has it
	powerRename            // path is about to be called to; link has what was called so
	powerDir               // the names in the folder path are on the disk
	powerMove              // the folder path is called to
)

// powerRecord is one change. Which fields count depends on kind.
type powerRecord struct {
	kind      uint64
	id, link  uint64
	off, size int64
	path, to  string
	old       []byte
}

func (r powerRecord) encode(b []byte) []byte {
	body := pack.Uint(pack.Uint(pack.Uint(nil, r.kind), r.id), r.link)
	body = pack.String(pack.String(pack.Int(pack.Int(body, r.off), r.size), r.path), r.to)
	body = pack.Bytes(body, r.old)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return append(b, body...)
}

// nextPower decodes the record at the start of b; 0 when a kill cut it off, and what it announced was not done.
func nextPower(b []byte) (powerRecord, int) {
	if len(b) < 8 {
		return powerRecord{}, 0
	}
	end := 8 + int64(binary.LittleEndian.Uint32(b))
	if int64(len(b)) < end || crc32.ChecksumIEEE(b[8:end]) != binary.LittleEndian.Uint32(b[4:]) {
		return powerRecord{}, 0
	}
	p := pack.Read(b[8:end])
	r := powerRecord{kind: p.Uint(), id: p.Uint(), link: p.Uint(), off: p.Int(), size: p.Int(), path: p.String(),
		to: p.String()}
	if old := p.Bytes(); len(old) > 0 {
		r.old = slices.Clone(old)
	}
	return r, int(end)
}

// in reports whether a change of names is one of the folder's.
func (r powerRecord) in(dir string) bool {
	return filepath.Dir(r.path) == dir || (r.kind == powerRename && filepath.Dir(r.to) == dir)
}

// revert undoes a change of names, as far as it was done.
func (r powerRecord) revert(side string) error {
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	switch r.kind {
	case powerCreate:
		if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case powerRename:
		if !there(r.path) && there(r.to) {
			if err := os.Rename(r.to, r.path); err != nil {
				return err
			}
		}
		r.path = r.to
	}
	if r.link == 0 || there(r.path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o700); err != nil {
		return err
	}
	return os.Rename(linkPath(side, r.link), r.path)
}

// powerState is what the records come to.
type powerState struct {
	side    string
	nodes   map[uint64]*powerNode // those that differ from the disk, or did
	paths   map[string]*powerNode
	names   []powerRecord // changes of names that no SyncDir covers, in order
	next    uint64        // the next id or link
	bytes   int64         // of the journal
	atLeast int64         // of it when it was written anew
}

// maxPowerLog is how long the journal becomes before it is written anew.
const maxPowerLog = 4 << 20

func powerLogPath(side string) string { return filepath.Join(side, "log") }

func linkPath(side string, link uint64) string {
	return filepath.Join(side, strconv.FormatUint(link, 10))
}

func readPower(side string) (powerState, error) {
	st := powerState{side: side, nodes: map[uint64]*powerNode{}, paths: map[string]*powerNode{}, next: 1}
	data, err := os.ReadFile(powerLogPath(side))
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	for len(data) > 0 && err == nil {
		r, n := nextPower(data)
		if n == 0 {
			break
		}
		st.apply(r)
		data = data[n:]
	}
	return st, err
}

func (st *powerState) apply(r powerRecord) {
	st.next = max(st.next, r.id+1, r.link+1)
	if n := st.nodes[r.id]; n != nil {
		n.apply(r)
		return
	}
	switch r.kind {
	case powerNew:
		n := st.paths[r.path]
		if n == nil {
			n = &powerNode{path: r.path}
			st.paths[r.path] = n
		}
		n.id, n.disk = r.id, r.size
		st.nodes[r.id] = n
	case powerCreate, powerRemove, powerRename:
		st.names = append(st.names, r)
		if r.kind == powerRename {
			st.carry(r.to, linkPath(st.side, r.link))
			st.carry(r.path, r.to)
		} else if r.kind == powerRemove {
			st.carry(r.path, linkPath(st.side, r.link))
		}
	case powerDir:
		st.names = slices.DeleteFunc(st.names, func(c powerRecord) bool {
			if c.in(r.path) && c.link != 0 {
				st.forget(linkPath(st.side, c.link))
			}
			return c.in(r.path)
		})
	case powerMove:
		st.move(r.path, r.to)
	}
}

// carry lets a file follow its name.
func (st *powerState) carry(from, to string) {
	if n := st.paths[from]; n != nil {
		n.path = to
		st.paths[to] = n
		delete(st.paths, from)
	}
}

// forget drops a file that is gone for good.
func (st *powerState) forget(link string) {
	_ = os.Remove(link) // a link that stays is room on the disk until the power is lost
	if n := st.paths[link]; n != nil {
		delete(st.nodes, n.id)
		delete(st.paths, link)
	}
}

func (st *powerState) move(from, to string) {
	moved := func(path string) string {
		if rest, ok := strings.CutPrefix(path, from+"/"); ok {
			return to + "/" + rest
		}
		return path
	}
	paths := make(map[string]*powerNode, len(st.paths))
	for _, n := range st.paths {
		n.path = moved(n.path)
		paths[n.path] = n
	}
	st.paths = paths
	for i := range st.names {
		st.names[i].path, st.names[i].to = moved(st.names[i].path), moved(st.names[i].to)
	}
}

// rewriteLocked writes the journal anew, with what still counts.
func (p *Power) rewriteLocked() error {
	var b []byte
	for _, c := range p.names {
		b = c.encode(b) // first: the files' paths are those of now
	}
	for id, n := range p.nodes {
		b = powerRecord{kind: powerNew, id: id, path: n.path, size: n.disk}.encode(b)
		for _, s := range n.spans {
			b = powerRecord{kind: powerSave, id: id, off: s.off, size: s.size(), old: s.old}.encode(b)
			if s.limbo {
				b = powerRecord{kind: powerFailed, id: id, off: s.off, size: -1}.encode(b)
			}
		}
	}
	temp := powerLogPath(p.side) + TempSuffix
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = os.Rename(temp, powerLogPath(p.side))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if p.log != nil {
		_ = p.log.Close() // it has no name any more
	}
	p.log, p.bytes, p.atLeast = f, int64(len(b)), int64(len(b))
	return nil
}

// powerNode is a file. mu is held during an operation that changes it; the rest is guarded by Power.mu too when it is
// changed.
type powerNode struct {
	mu    sync.Mutex
	id    uint64 // 0 until it is changed
	path  string
	disk  int64 // its size on the disk
	spans []powerSpan
}

// powerSpan is a part of a file whose bytes on the disk are others. Spans are sorted and do not overlap.
type powerSpan struct {
	off, n int64
	old    []byte // nil: zeros
	limbo  bool   // a Sync of the present bytes failed: the next one leaves them out
}

func (s powerSpan) end() int64 { return s.off + s.n }

// size is the length where old does not tell.
func (s powerSpan) size() int64 {
	if s.old != nil {
		return 0
	}
	return s.n
}

// cut returns the part of s from a to b.
func (s powerSpan) cut(a, b int64) powerSpan {
	part := powerSpan{off: a, n: b - a, limbo: s.limbo}
	if s.old != nil {
		part.old = s.old[a-s.off : b-s.off]
	}
	return part
}

// uncovered returns the parts from a to b that no span has.
func (n *powerNode) uncovered(a, b int64) (gaps []powerSpan) {
	for _, s := range n.spans {
		if s.end() <= a || s.off >= b {
			continue
		}
		if s.off > a {
			gaps = append(gaps, powerSpan{off: a, n: s.off - a})
		}
		a = s.end()
	}
	if a < b {
		gaps = append(gaps, powerSpan{off: a, n: b - a})
	}
	return gaps
}

// limbo reports whether a failed Sync dropped any of the bytes from a to b.
func (n *powerNode) limbo(a, b int64) bool {
	return slices.ContainsFunc(n.spans, func(s powerSpan) bool { return s.limbo && s.off < b && s.end() > a })
}

func (n *powerNode) add(s powerSpan) {
	n.spans = append(n.spans, s)
	slices.SortFunc(n.spans, func(a, b powerSpan) int { return int(min(1, max(-1, a.off-b.off))) })
}

func (n *powerNode) apply(r powerRecord) {
	switch r.kind {
	case powerSave:
		n.add(powerSpan{off: r.off, n: max(int64(len(r.old)), r.size), old: r.old})
	case powerAgain:
		n.again(r.off, r.off+r.size)
	case powerSynced:
		n.spans = slices.DeleteFunc(n.spans, func(s powerSpan) bool { return !s.limbo || s.off >= r.size })
		n.disk = r.size
	case powerFailed:
		if r.size < 0 { // of a journal that was written anew: one span
			for i, s := range n.spans {
				n.spans[i].limbo = s.limbo || s.off == r.off
			}
			return
		}
		for i := range n.spans {
			n.spans[i].limbo = true
		}
		for _, gap := range n.uncovered(n.disk, r.size) {
			gap.limbo = true
			n.add(gap)
		}
	}
}

// again takes the bytes from a to b out of limbo: the next Sync covers them.
func (n *powerNode) again(a, b int64) {
	var next []powerSpan
	for _, s := range n.spans {
		if !s.limbo || s.off >= b || s.end() <= a {
			next = append(next, s)
			continue
		}
		if s.off < a {
			next = append(next, s.cut(s.off, a))
		}
		middle := s.cut(max(s.off, a), min(s.end(), b))
		middle.limbo = false
		next = append(next, middle)
		if s.end() > b {
			next = append(next, s.cut(b, s.end()))
		}
	}
	n.spans = next
}

// revert puts the bytes back that the disk has, but for sectors that coin keeps.
func (n *powerNode) revert(coin func() bool) error {
	f, err := os.OpenFile(n.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was about to be made or moved when the process was killed
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := n.disk
	if n.disk < info.Size() && coin() { // the size may reach the disk before the bytes do
		size = info.Size()
		for _, gap := range n.uncovered(n.disk, size) {
			n.add(gap)
		}
	}
	for _, s := range n.spans {
		for at := s.off; at < s.end() && at < size; {
			end := min(s.end(), (at/sectorBytes+1)*sectorBytes, size)
			if !coin() {
				old := s.cut(at, end).old
				if old == nil {
					old = make([]byte, end-at)
				}
				if _, err := f.WriteAt(old, at); err != nil {
					return err
				}
			}
			at = end
		}
	}
	return f.Truncate(size)
}
