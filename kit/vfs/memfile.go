package vfs

import (
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

func sortedKeys(tree map[string]*inode) []string { return slices.Sorted(maps.Keys(tree)) }

// grow makes b size bytes long, zeroes at the end; capacity doubles, so that appends stay cheap.
func grow(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b
	}
	if size > int64(cap(b)) {
		next := make([]byte, size, max(size, 2*int64(cap(b))))
		copy(next, b)
		return next
	}
	old := len(b)
	b = b[:size]
	clear(b[old:])
	return b
}

func (n *inode) resize(size int64) {
	n.data = setSize(n.data, size)
	n.changes = append(n.changes, change{off: size})
	n.modTime = time.Now()
}

func setSize(b []byte, size int64) []byte {
	if size < int64(len(b)) {
		return b[:size]
	}
	return grow(b, size)
}

func (n *inode) write(off int64, p []byte) {
	n.data = grow(n.data, off+int64(len(p)))
	copy(n.data[off:], p)
	n.changes = append(n.changes, change{off: off, data: slices.Clone(p)})
	n.modTime = time.Now()
}

// sync makes the pending changes part of the synced bytes; it costs what was written since the last one.
func (n *inode) sync() {
	for _, c := range n.changes {
		if c.data == nil {
			n.synced = setSize(n.synced, c.off)
			continue
		}
		n.synced = grow(n.synced, c.off+int64(len(c.data)))
		copy(n.synced[c.off:], c.data)
	}
	n.changes = nil
}

// drop is what a failed Sync does to the pending writes: of each sector the disk has the new bytes or the old ones, and
// no later Sync makes up for that, for the pages count as clean; reads show them until the power is lost. Changes of
// size stay pending: they are in the file system's own log, which stops all of it when it fails. What a write had
// added then reads as zeros.
func (n *inode) drop(rng *rand.Rand) {
	mood := 2 * rng.IntN(2) // half of the time nothing reached the disk
	var sizes []change
	size := int64(len(n.synced))
	for _, c := range n.changes {
		if c.data == nil {
			size = c.off
			sizes = append(sizes, c)
			continue
		}
		n.synced = c.land(n.synced, rng, mood)
		if end := c.off + int64(len(c.data)); end > size {
			size = end
			sizes = append(sizes, change{off: end})
		}
	}
	n.changes = sizes
}

// land writes the sectors of a write that reach the disk.
func (c change) land(disk []byte, rng *rand.Rand, mood int) []byte {
	for start := int64(0); start < int64(len(c.data)); {
		border := (c.off+start)/sectorBytes*sectorBytes + sectorBytes
		end := min(int64(len(c.data)), border-c.off)
		if keep(rng, mood) {
			disk = grow(disk, c.off+end)
			copy(disk[c.off+start:], c.data[start:end])
		}
		start = end
	}
	return disk
}

// crash returns a copy with the synced bytes and a random part of the changes.
func (n *inode) crash(rng *rand.Rand, mood int) *inode {
	after := &inode{dir: n.dir, perm: n.perm, modTime: n.modTime}
	data := slices.Clone(n.synced)
	for _, c := range n.changes {
		if c.data != nil {
			data = c.land(data, rng, mood)
		} else if keep(rng, mood) {
			data = setSize(data, c.off)
		}
	}
	// The size may reach the disk before the bytes do: the tail then reads as zeroes.
	if mood == 2 && len(n.changes) > 0 && rng.IntN(4) == 0 {
		data = grow(data, int64(len(n.data)))
	}
	after.data, after.synced = data, slices.Clone(data)
	return after
}

type memInfo struct {
	name    string
	size    int64
	mode    fs.FileMode
	modTime time.Time
}

func (n *inode) info(path string) memInfo {
	mode := n.perm
	if n.dir {
		mode |= fs.ModeDir
	}
	return memInfo{name: filepath.Base(path), size: int64(len(n.data)), mode: mode, modTime: n.modTime}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return i.modTime }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return nil }

// memFile is one handle; its fields are guarded by the Mem's mutex.
type memFile struct {
	fs     *Mem
	node   *inode
	name   string
	flag   int
	off    int64
	closed bool
}

// Name implements File.
func (f *memFile) Name() string { return f.name }

// useLocked checks that the handle is open and, for a change, that it may write.
func (f *memFile) useLocked(op string, change bool) error {
	if f.closed {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if op == "read" && f.flag&os.O_WRONLY != 0 {
		return pathError(op, f.name, syscall.EBADF)
	}
	if change && f.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) readLocked(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	return copy(p, f.node.data[off:]), nil
}

// Read implements File.
func (f *memFile) Read(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("read", false); err != nil || len(p) == 0 {
		return 0, err
	}
	n, err := f.readLocked(p, f.off)
	f.off += int64(n)
	return n, err
}

// ReadAt implements File.
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("read", false); err != nil {
		return 0, err
	}
	n, err := f.readLocked(p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Write implements File.
func (f *memFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("write", true); err != nil {
		return 0, err
	}
	if f.flag&os.O_APPEND != 0 {
		f.off = int64(len(f.node.data))
	}
	f.node.write(f.off, p)
	f.off += int64(len(p))
	return len(p), nil
}

// WriteAt implements File.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("write", true); err != nil {
		return 0, err
	}
	if off < 0 || f.flag&os.O_APPEND != 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	f.node.write(off, p)
	return len(p), nil
}

// Sync implements File.
func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("sync", false); err != nil {
		return err
	}
	f.node.sync()
	return nil
}

// syncFailed implements dropper.
func (f *memFile) syncFailed() {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.node.drop(f.fs.rng)
}

// Truncate implements File.
func (f *memFile) Truncate(sizeBytes int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("truncate", true); err != nil {
		return err
	}
	if sizeBytes < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	f.node.resize(sizeBytes)
	return nil
}

// Preallocate implements File.
func (f *memFile) Preallocate(sizeBytes int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("fallocate", sizeBytes > int64(len(f.node.data))); err != nil {
		return err
	}
	if sizeBytes > int64(len(f.node.data)) {
		f.node.resize(sizeBytes)
	}
	return nil
}

// Stat implements File.
func (f *memFile) Stat() (fs.FileInfo, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("stat", false); err != nil {
		return nil, err
	}
	return f.node.info(f.name), nil
}

// Close implements File. It syncs nothing, as on a real disk.
func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.useLocked("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}
