package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Power is the machine's file system below a folder, with a plug that can be pulled: it keeps in a journal of its
// own, beside the folder, what stood on the disk before each change that no fsync covers yet. The journal outlives
// the process: after a kill -9 either a new Power takes it over, and the process finds what the machine's memory has,
// or LosePower puts back what a power loss would leave. It exists for fault runs.
//
// As in Mem a failed Sync drops what was written: no later Sync makes up for that, only writing again does. It drops
// what was cut off, too. Folders are durable at once, made or moved, as are files that nobody opened through it.
// Operations on one file go one after the other: a write waits for a Sync.
type Power struct {
	OS
	root string

	mu  sync.Mutex // guards what follows; taken after a file's mu
	log *os.File
	powerState
}

var _ FS = (*Power)(nil)

// NewPower returns the file system for all below root. side is a folder of its own on the same disk, not below root.
func NewPower(root, side string) (*Power, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(side, 0o700); err != nil {
		return nil, err
	}
	p := &Power{root: root}
	if p.powerState, err = readPower(side); err != nil {
		return nil, err
	}
	return p, p.rewriteLocked()
}

// LosePower puts back what a power loss leaves of all that was done below root through a Power with that side folder
// and not synced: half of the time nothing, else each sector of what was written stays or goes on its own, and the
// names last changed go. No process may use the files.
func LosePower(side string, rng *rand.Rand) error {
	st, err := readPower(side)
	if err != nil {
		return err
	}
	coin := func() bool { return false } // whether something stays
	if rng.IntN(2) == 0 {
		coin = func() bool { return rng.IntN(2) == 0 }
	}
	return st.lose(coin)
}

func (st *powerState) lose(coin func() bool) error {
	for _, n := range st.nodes {
		if err := n.revert(coin); err != nil {
			return fmt.Errorf("lose power: %w", err)
		}
	}
	for _, c := range slices.Backward(st.names) {
		if coin() {
			break // a file system keeps its names in the order in which they were changed
		}
		if err := c.revert(st.side); err != nil {
			return fmt.Errorf("lose power: %w", err)
		}
	}
	return os.RemoveAll(st.side)
}

// covers reports whether the path is below root, and gives it in its clean form.
func (p *Power) covers(name string) (string, bool) {
	path, err := filepath.Abs(name)
	return path, err == nil && strings.HasPrefix(path, p.root+"/")
}

// changeLocked puts a record into the journal, before it is done or, for a sync, afterwards.
func (p *Power) changeLocked(r powerRecord) error {
	b := r.encode(nil)
	if _, err := p.log.Write(b); err != nil {
		return fmt.Errorf("the journal of the power: %w", err)
	}
	p.apply(r)
	if p.bytes += int64(len(b)); p.bytes > maxPowerLog && p.bytes > 2*p.atLeast {
		return p.rewriteLocked()
	}
	return nil
}

// OpenFile implements FS.
func (p *Power) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	path, ok := p.covers(name)
	if !ok || flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return p.OS.OpenFile(name, flag, perm)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before, err := os.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && flag&os.O_CREATE != 0 {
		if err := p.changeLocked(powerRecord{kind: powerCreate, path: path}); err != nil {
			return nil, err
		}
	}
	// To be read too: what is about to be replaced is.
	f, err := os.OpenFile(name, flag&^(os.O_TRUNC|os.O_WRONLY)|os.O_RDWR, perm)
	if err != nil {
		return nil, err
	}
	n := p.paths[path]
	if n == nil {
		n = &powerNode{path: path}
		if !missing && before != nil {
			n.disk = before.Size()
		}
		p.paths[path] = n
	}
	file := &powerFile{osFile: osFile{f}, p: p, n: n, flag: flag}
	if flag&os.O_TRUNC != 0 {
		p.mu.Unlock()
		err = file.Truncate(0)
		p.mu.Lock()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return file, nil
}

// Create implements FS.
func (p *Power) Create(name string) (File, error) {
	return p.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Remove implements FS.
func (p *Power) Remove(name string) error {
	path, ok := p.covers(name)
	if info, err := os.Lstat(name); !ok || err != nil || info.IsDir() {
		return p.OS.Remove(name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	link, err := p.saveLocked(path)
	if err == nil {
		err = p.changeLocked(powerRecord{kind: powerRemove, path: path, link: link})
	}
	if err != nil {
		return err
	}
	return p.OS.Remove(name)
}

// Rename implements FS.
func (p *Power) Rename(from, to string) error {
	source, ok := p.covers(from)
	target, too := p.covers(to)
	info, err := os.Lstat(from)
	if !ok || !too || err != nil || source == target {
		return p.OS.Rename(from, to)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if info.IsDir() {
		if err := p.OS.Rename(from, to); err != nil {
			return err
		}
		return p.changeLocked(powerRecord{kind: powerMove, path: source, to: target})
	}
	link := uint64(0)
	if _, err := os.Lstat(target); err == nil {
		if link, err = p.saveLocked(target); err != nil {
			return err
		}
	}
	if err := p.changeLocked(powerRecord{kind: powerRename, path: source, to: target, link: link}); err != nil {
		return err
	}
	return p.OS.Rename(from, to)
}

// saveLocked keeps a file that is about to lose its name.
func (p *Power) saveLocked(path string) (uint64, error) {
	link := p.next
	to := linkPath(p.side, link)
	// left by a process that was killed right here
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	return link, os.Link(path, to)
}

// SyncDir implements FS.
func (p *Power) SyncDir(name string) error {
	path, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.OS.SyncDir(name); err != nil ||
		!slices.ContainsFunc(p.names, func(c powerRecord) bool { return c.in(path) }) {
		return err
	}
	return p.changeLocked(powerRecord{kind: powerDir, path: path})
}

// powerFile is one handle that may write.
type powerFile struct {
	osFile
	p    *Power
	n    *powerNode
	flag int
}

// keep saves what a write of so many bytes is about to replace. It needs the node's mu.
func (f *powerFile) keep(off, size int64) error {
	for _, gap := range f.n.uncovered(off, min(off+size, f.n.disk)) {
		old := make([]byte, gap.n)
		if err := f.readOld(old, gap.off); err != nil {
			return err
		}
		if err := f.record(powerRecord{kind: powerSave, off: gap.off, old: old}); err != nil {
			return err
		}
	}
	if !f.n.limbo(off, off+size) {
		return nil
	}
	return f.record(powerRecord{kind: powerAgain, off: off, size: size})
}

func (f *powerFile) readOld(old []byte, off int64) error {
	if _, err := f.ReadAt(old, off); err != nil && err != io.EOF { // what is behind the end reads as zeros
		return err
	}
	return nil
}

// record journals a change of the file, after what the file was before the first one.
func (f *powerFile) record(r powerRecord) error {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.n.id == 0 {
		f.n.id = f.p.next
		if err := f.p.changeLocked(powerRecord{kind: powerNew, id: f.n.id, path: f.n.path, size: f.n.disk}); err != nil {
			return err
		}
	}
	r.id = f.n.id
	return f.p.changeLocked(r)
}

// Write implements File.
func (f *powerFile) Write(b []byte) (int, error) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	whence := io.SeekCurrent
	if f.flag&os.O_APPEND != 0 {
		whence = io.SeekEnd
	}
	off, err := f.Seek(0, whence)
	if err == nil {
		err = f.changes(off, int64(len(b)))
	}
	if err != nil {
		return 0, err
	}
	return f.osFile.Write(b)
}

// WriteAt implements File.
func (f *powerFile) WriteAt(b []byte, off int64) (int, error) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	if err := f.changes(off, int64(len(b))); err != nil {
		return 0, err
	}
	return f.osFile.WriteAt(b, off)
}

// changes notes that the file is not what it was on the disk.
func (f *powerFile) changes(off, size int64) error {
	if err := f.keep(off, size); err != nil || f.n.id != 0 {
		return err
	}
	return f.record(powerRecord{kind: powerAgain}) // for the file's size
}

// Truncate implements File.
func (f *powerFile) Truncate(size int64) error {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	if err := f.changes(size, max(0, f.n.disk-size)); err != nil {
		return err
	}
	return f.osFile.Truncate(size)
}

// Preallocate implements File.
func (f *powerFile) Preallocate(size int64) error {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	if err := f.changes(0, 0); err != nil {
		return err
	}
	return f.osFile.Preallocate(size)
}

// Sync implements File.
func (f *powerFile) Sync() error {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	if err := f.osFile.Sync(); err != nil {
		f.failed()
		return err
	}
	if f.n.id == 0 {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return f.record(powerRecord{kind: powerSynced, size: info.Size()})
}

// syncFailed implements dropper.
func (f *powerFile) syncFailed() {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.failed()
}

func (f *powerFile) failed() {
	if info, err := f.Stat(); err == nil && f.n.id != 0 {
		_ = f.record(powerRecord{kind: powerFailed, size: info.Size()}) // the Sync failed; nobody is told more than that
	}
}
