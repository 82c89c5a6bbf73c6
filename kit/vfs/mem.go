package vfs

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sectorBytes is the unit that a disk writes whole: torn writes tear at its borders.
const sectorBytes = 512

// Mem is a file system in memory that models a power loss. It exists for tests.
// One mutex guards the tree and all files' bytes: it is simple, not fast.
type Mem struct {
	mu    sync.Mutex
	live  map[string]*inode // what a running process sees; folders too
	safe  map[string]*inode // names that survive a power loss
	names []nameChange      // name changes not yet covered by a SyncDir, in order
	locks map[string]bool
	rng   *rand.Rand // decides what of a failed Sync reached the disk
}

var _ FS = (*Mem)(nil)

// inode is a file or a folder. Its synced bytes survive; each of its changes may or may not.
type inode struct {
	dir     bool
	perm    fs.FileMode
	modTime time.Time
	data    []byte
	synced  []byte
	changes []change
}

// change is one unsynced write, or a change of size when data is nil.
type change struct {
	off  int64
	data []byte
}

// nameChange sets or clears names in one step: a creation has only set, a removal only unset.
type nameChange struct {
	unset, set string
	node       *inode
}

// NewMem returns an empty file system that has only the folders "/" and ".".
func NewMem() *Mem {
	m := &Mem{live: map[string]*inode{}, safe: map[string]*inode{}, locks: map[string]bool{},
		rng: rand.New(rand.NewPCG(0, 0))}
	for _, root := range []string{"/", "."} {
		node := &inode{dir: true, perm: 0o755}
		m.live[root], m.safe[root] = node, node
	}
	return m
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// OpenFile implements FS.
func (m *Mem) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	clean := filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.live[clean]
	switch {
	case node == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case node == nil:
		if parent := m.live[filepath.Dir(clean)]; parent == nil || !parent.dir {
			return nil, pathError("open", name, fs.ErrNotExist)
		}
		node = &inode{perm: perm, modTime: time.Now()}
		m.live[clean] = node
		m.names = append(m.names, nameChange{set: clean, node: node})
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, fs.ErrExist)
	case node.dir && flag&(os.O_WRONLY|os.O_RDWR) != 0:
		return nil, pathError("open", name, syscall.EISDIR)
	case flag&os.O_TRUNC != 0:
		node.resize(0)
	}
	return &memFile{fs: m, node: node, name: name, flag: flag}, nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	return m.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (m *Mem) childrenLocked(dir string) []string {
	var names []string
	for path := range m.live {
		if path != dir && filepath.Dir(path) == dir {
			names = append(names, path)
		}
	}
	return names
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	clean := filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.live[clean]
	if node == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if node.dir {
		if len(m.childrenLocked(clean)) > 0 {
			return pathError("remove", name, syscall.ENOTEMPTY)
		}
		// A folder goes at once: what is left below it in safe is unreachable after a crash.
		delete(m.live, clean)
		delete(m.safe, clean)
		return nil
	}
	delete(m.live, clean)
	m.names = append(m.names, nameChange{unset: clean})
	return nil
}

// Rename implements FS for files; folders are moved with all below them and durably.
func (m *Mem) Rename(from, to string) error {
	cleanFrom, cleanTo := filepath.Clean(from), filepath.Clean(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	node, target := m.live[cleanFrom], m.live[cleanTo]
	parent := m.live[filepath.Dir(cleanTo)]
	switch {
	case node == nil || parent == nil || !parent.dir:
		return pathError("rename", from, fs.ErrNotExist)
	case node.dir && target != nil:
		return pathError("rename", to, fs.ErrExist)
	case target != nil && target.dir:
		return pathError("rename", to, syscall.EISDIR)
	case node.dir:
		m.moveFolderLocked(cleanFrom, cleanTo)
		return nil
	case cleanFrom == cleanTo:
		return nil
	}
	delete(m.live, cleanFrom)
	m.live[cleanTo] = node
	m.names = append(m.names, nameChange{unset: cleanFrom, set: cleanTo, node: node})
	return nil
}

func (m *Mem) moveFolderLocked(from, to string) {
	moved := func(path string) string {
		if path == from {
			return to
		}
		if rest, ok := strings.CutPrefix(path, from+"/"); ok {
			return to + "/" + rest
		}
		return path
	}
	for _, tree := range []*map[string]*inode{&m.live, &m.safe} {
		next := make(map[string]*inode, len(*tree))
		for path, node := range *tree {
			next[moved(path)] = node
		}
		*tree = next
	}
	for i := range m.names {
		m.names[i].set, m.names[i].unset = moved(m.names[i].set), moved(m.names[i].unset)
	}
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string, perm fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path := filepath.Clean(name); ; path = filepath.Dir(path) {
		if node := m.live[path]; node != nil {
			if !node.dir {
				return pathError("mkdir", name, syscall.ENOTDIR)
			}
			return nil
		}
		node := &inode{dir: true, perm: perm, modTime: time.Now()}
		m.live[path], m.safe[path] = node, node
	}
}

// ReadDir implements FS.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	clean := filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.live[clean]
	if node == nil {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	if !node.dir {
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	entries := []fs.DirEntry{}
	for _, path := range m.childrenLocked(clean) {
		entries = append(entries, fs.FileInfoToDirEntry(m.live[path].info(path)))
	}
	sortEntries(entries)
	return entries, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.live[filepath.Clean(name)]
	if node == nil {
		return nil, pathError("stat", name, fs.ErrNotExist)
	}
	return node.info(name), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	clean := filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if node := m.live[clean]; node == nil || !node.dir {
		return pathError("sync", name, fs.ErrNotExist)
	}
	rest := m.names[:0:0]
	for _, c := range m.names {
		if (c.set != "" && filepath.Dir(c.set) == clean) || (c.unset != "" && filepath.Dir(c.unset) == clean) {
			c.apply(m.safe)
		} else {
			rest = append(rest, c)
		}
	}
	m.names = rest
	return nil
}

func (c nameChange) apply(tree map[string]*inode) {
	if c.unset != "" {
		delete(tree, c.unset)
	}
	if c.set != "" {
		tree[c.set] = c.node
	}
}

type memLock struct {
	m    *Mem
	name string
	once sync.Once
}

// Close lets go of the lock.
func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		delete(l.m.locks, l.name)
		l.m.mu.Unlock()
	})
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	clean := filepath.Clean(name)
	f, err := m.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	_ = f.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[clean] {
		return nil, ErrLocked
	}
	m.locks[clean] = true
	return &memLock{m: m, name: clean}, nil
}

// Crash returns what a power loss at this moment could leave, drawn from rng:
// unsynced writes are kept, lost, or torn at 512-byte borders, each on its own
// (so also out of order); unsynced names appear or not. Everything in the result
// is durable, no lock is held, and m goes on unchanged.
func (m *Mem) Crash(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	tree := make(map[string]*inode, len(m.safe))
	for path, node := range m.safe {
		tree[path] = node
	}
	mood := rng.IntN(3) // 0: all pending lost, 1: all kept, 2: a coin for each
	for _, c := range m.names {
		if keep(rng, mood) {
			c.apply(tree)
		}
	}
	after := NewMem()
	copies := map[*inode]*inode{}
	for _, path := range sortedKeys(tree) {
		node := tree[path]
		if !reachable(tree, path) {
			continue
		}
		if copies[node] == nil {
			copies[node] = node.crash(rng, mood)
		}
		after.live[path], after.safe[path] = copies[node], copies[node]
	}
	return after
}

// Killed returns what is there after the process was killed at this moment while the machine ran on: the new process
// reads all that was written, synced or not, for the machine's memory still has it, but nothing became durable by
// that. A Crash of the result is the power loss that comes later. No lock is held, and m goes on unchanged.
func (m *Mem) Killed() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	after := NewMem()
	copies := map[*inode]*inode{}
	twin := func(node *inode) *inode {
		if node != nil && copies[node] == nil {
			same := *node
			same.data, same.synced, same.changes = slices.Clone(node.data), slices.Clone(node.synced), slices.Clone(node.changes)
			copies[node] = &same
		}
		return copies[node]
	}
	for path, node := range m.live {
		after.live[path] = twin(node)
	}
	for path, node := range m.safe {
		after.safe[path] = twin(node)
	}
	for _, c := range m.names {
		after.names = append(after.names, nameChange{unset: c.unset, set: c.set, node: twin(c.node)})
	}
	after.rng = rand.New(rand.NewPCG(m.rng.Uint64(), 0))
	return after
}

// Seed makes what failed Syncs leave on the disk another one.
func (m *Mem) Seed(seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rng = rand.New(rand.NewPCG(seed, 1))
}

func keep(rng *rand.Rand, mood int) bool { return mood == 1 || (mood == 2 && rng.IntN(2) == 0) }

func reachable(tree map[string]*inode, path string) bool {
	for parent := filepath.Dir(path); ; parent = filepath.Dir(parent) {
		if node := tree[parent]; node == nil || !node.dir {
			return false
		}
		if parent == filepath.Dir(parent) {
			return true
		}
	}
}
