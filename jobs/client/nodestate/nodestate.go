// Package nodestate keeps what a node has to know after a restart of its agent: who it is, and each allocation with
// the handles of its tasks. One file an allocation, replaced whole and fsynced: what Put stored is there after a power
// loss, and a file that cannot be read is set aside and reported, so that the others live.
//
// All methods may be called by any goroutine; calls for one allocation come one after the other.
package nodestate

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/taskrunner"
	"corbel.dev/corbel/kit/vfs"
)

// Store is a folder.
type Store struct {
	fs  vfs.FS
	dir string
}

// Record is an allocation.
type Record struct {
	Workload []byte // workload.Bytes
	Tasks    map[string]taskrunner.Saved
	Health   jobs.Health
	HealthAt jobs.Time
	Done     bool // its tasks are dead for good
}

// Open opens a store below dir; nil when dir is "", which keeps nothing.
func Open(fsys vfs.FS, dir string) (*Store, error) {
	if dir == "" {
		return nil, nil
	}
	s := &Store{fs: fsys, dir: dir}
	return s, fsys.MkdirAll(filepath.Join(dir, "allocs"), 0o700)
}

// Secret is the node's, made once.
func (s *Store) Secret() (id jobs.ID, err error) {
	if s == nil {
		_, _ = rand.Read(id[:])
		return id, nil
	}
	name := filepath.Join(s.dir, "secret")
	text, err := vfs.ReadDurable(s.fs, name)
	if err == nil && len(text) == len(id) {
		return jobs.ID(text), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	_, _ = rand.Read(id[:])
	return id, vfs.WriteFileAtomic(s.fs, name, id[:], 0o600)
}

// Life is the number of this start of the agent, above those of the former ones. The clock stands in for a file that is
// lost, and is above the number in an older copy of the folder. An error says that it is not stored.
func (s *Store) Life(now time.Time) (uint64, error) {
	life := uint64(max(now.Unix(), 1))
	if s == nil {
		return life, nil
	}
	name := filepath.Join(s.dir, "life")
	text, err := vfs.ReadDurable(s.fs, name)
	if err == nil {
		if former, err := strconv.ParseUint(string(text), 10, 64); err == nil {
			life = max(life, former+1)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return life, err
	}
	return life, vfs.WriteFileAtomic(s.fs, name, strconv.AppendUint(nil, life, 10), 0o600)
}

// Meta is the node's metadata that was set at run time. wrong says that its file cannot be read: it is kept beside
// with another name.
func (s *Store) Meta() (all map[string]*string, wrong, err error) {
	if s == nil {
		return nil, nil, nil
	}
	text, err := vfs.ReadDurable(s.fs, s.metaPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, errors.Join(err, s.fs.Rename(s.metaPath(), s.metaPath()+".damaged")), nil
	}
	return all, nil, nil
}

// PutMeta stores it durably.
func (s *Store) PutMeta(all map[string]*string) error {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(s.fs, s.metaPath(), text, 0o600)
}

func (s *Store) metaPath() string { return filepath.Join(s.dir, "meta"+suffix) }

const suffix = ".json"

func (s *Store) path(id jobs.ID) string { return filepath.Join(s.dir, "allocs", id.String()+suffix) }

// Put stores a record durably.
func (s *Store) Put(id jobs.ID, r *Record) error {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(s.fs, s.path(id), text, 0o600)
}

// Delete forgets an allocation.
func (s *Store) Delete(id jobs.ID) error {
	if s == nil {
		return nil
	}
	if err := s.fs.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.fs.SyncDir(filepath.Join(s.dir, "allocs"))
}

// All reads everything. wrong names the files that could not be read: they are kept beside with another name.
func (s *Store) All() (list []*Record, wrong []error, err error) {
	if s == nil {
		return nil, nil, nil
	}
	dir := filepath.Join(s.dir, "allocs")
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		text, err := vfs.ReadDurable(s.fs, name)
		if err != nil {
			return nil, nil, err
		}
		r := &Record{}
		if err := json.Unmarshal(text, r); err != nil {
			wrong = append(wrong, errors.Join(err, s.fs.Rename(name, name+".damaged")))
			continue
		}
		list = append(list, r)
	}
	return list, wrong, nil
}
