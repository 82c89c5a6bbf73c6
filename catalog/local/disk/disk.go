// Package disk keeps an agent's registrations across restarts.
//
// Invariants:
//   - What SaveService or SaveCheck acknowledged is there after a power loss; what a removal
//     acknowledged is not.
//   - A registration that is repeated unchanged writes nothing.
//   - A file that cannot be read is reported and left where it is.
//
// All methods but Open and Load are safe for concurrent use by calls for different ids; the
// caller orders the calls for one id. Callers that write at the same time share the folder's fsync.
package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/vfs"
)

// Store is data_dir/services and data_dir/checks, one file per id, and the states of all TTL
// checks in one file.
type Store struct {
	fs                      vfs.FS
	services, checks, state string
	log                     *slog.Logger
	serviceSync, checkSync  dirSync

	mu    sync.Mutex
	known map[string][sha256.Size]byte // content of each file: a repeated registration writes nothing
}

// stored is the content of a registration's file.
type stored struct {
	Version int
	Service *definition.Service `json:",omitempty"`
	Check   *definition.Check   `json:",omitempty"`
}

const storedVersion = 1

// TTLState lets a restart keep a TTL check's status while its period lasts.
type TTLState struct {
	Status  string
	Output  string
	Expires time.Time
}

// Open makes the folders where they are not there yet.
func Open(fsys vfs.FS, dir string, log *slog.Logger) (*Store, error) {
	s := &Store{fs: fsys, log: log, services: filepath.Join(dir, "services"), checks: filepath.Join(dir, "checks"),
		state: filepath.Join(dir, "checks", "state"), known: map[string][sha256.Size]byte{}}
	for _, d := range []string{s.services, s.state} {
		if err := fsys.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	// what is served from them outlives a power loss, also after a kill before this fsync
	for _, d := range []string{s.services, s.checks} {
		if err := fsys.SyncDir(d); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// fileName is safe whatever the id holds.
func fileName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// SaveService is on stable storage when it returns.
func (s *Store) SaveService(d *definition.Service) error {
	return s.save(filepath.Join(s.services, fileName(d.ServiceID())), stored{Version: storedVersion, Service: d})
}

// HasService tells whether a registration of the id is on disk.
func (s *Store) HasService(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.known[filepath.Join(s.services, fileName(id))]
	return there
}

// SaveCheck is on stable storage when it returns.
func (s *Store) SaveCheck(d *definition.Check) error {
	return s.save(filepath.Join(s.checks, fileName(d.ID)), stored{Version: storedVersion, Check: d})
}

func (s *Store) save(path string, content stored) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	s.mu.Lock()
	same := s.known[path] == sum
	s.mu.Unlock()
	if same {
		return nil
	}
	if err := s.replace(path, data); err != nil {
		return err
	}
	s.mu.Lock()
	s.known[path] = sum
	s.mu.Unlock()
	return nil
}

// RemoveService forgets a service durably; one that is not there is no error.
func (s *Store) RemoveService(id string) error {
	return s.remove(filepath.Join(s.services, fileName(id)))
}

// RemoveCheck logs a failure: a check that stays on disk without its service is ignored at the next start.
func (s *Store) RemoveCheck(id string) {
	if err := s.remove(filepath.Join(s.checks, fileName(id))); err != nil {
		s.log.Error("a deregistered check stays on disk", "check", id, "error", err)
	}
}

func (s *Store) remove(path string) error {
	s.mu.Lock()
	_, there := s.known[path]
	if there {
		s.known[path] = [sha256.Size]byte{} // no content has this sum: whoever saves meanwhile writes
	}
	s.mu.Unlock()
	if !there {
		return nil
	}
	if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.syncDir(path); err != nil {
		return err // it may come back: whoever asks again is not told that it is gone before the disk knows
	}
	s.mu.Lock()
	delete(s.known, path)
	s.mu.Unlock()
	return nil
}

// replace is vfs.WriteFileAtomic with the folder's fsync shared by all who
// write at the same time: a rack that registers at once halves its fsyncs.
func (s *Store) replace(path string, data []byte) error {
	if err := vfs.ReplaceFile(s.fs, path, data, 0o600); err != nil {
		return err
	}
	return s.syncDir(path)
}

func (s *Store) syncDir(path string) error {
	if filepath.Dir(path) == s.services {
		return s.serviceSync.sync(s.fs, s.services)
	}
	return s.checkSync.sync(s.fs, s.checks)
}

// dirSync makes callers share the fsync of a folder: those who come while one
// is under way wait for the next, which covers all of their renames.
type dirSync struct {
	turn sync.Mutex // held by the round that syncs

	mu   sync.Mutex
	next *syncRound // has not begun; nil: the next caller opens it
}

type syncRound struct {
	done chan struct{}
	err  error // set before done is closed
}

func (d *dirSync) sync(fsys vfs.FS, dir string) error {
	d.mu.Lock()
	r := d.next
	leads := r == nil
	if leads {
		r = &syncRound{done: make(chan struct{})}
		d.next = r
	}
	d.mu.Unlock()
	if !leads {
		<-r.done
		return r.err
	}
	d.turn.Lock()
	d.mu.Lock()
	d.next = nil // who comes now may have renamed after this fsync began
	d.mu.Unlock()
	r.err = fsys.SyncDir(dir)
	d.turn.Unlock()
	close(r.done)
	return r.err
}

// Load reads all registrations. A file that cannot be read is reported and left
// where it is: one broken file must not keep the others from being served.
func (s *Store) Load() (services []*definition.Service, checks []*definition.Check) {
	for _, dir := range []string{s.services, s.checks} {
		entries, err := s.fs.ReadDir(dir)
		if err != nil {
			s.log.Error("cannot list registrations", "folder", dir, "error", err)
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if e.IsDir() {
				continue
			}
			if strings.HasSuffix(path, vfs.TempSuffix) {
				_ = s.fs.Remove(path) // unfinished: never acknowledged
				continue
			}
			content, err := s.read(path)
			switch {
			case err != nil:
				s.log.Error("cannot read a registration", "file", path, "error", err)
			case content.Service != nil:
				services = append(services, content.Service)
			case content.Check != nil:
				checks = append(checks, content.Check)
			}
		}
	}
	return services, checks
}

func (s *Store) read(path string) (stored, error) {
	data, err := vfs.ReadFile(s.fs, path)
	if err != nil {
		return stored{}, err
	}
	var content stored
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&content); err != nil {
		return stored{}, err
	}
	s.known[path] = sha256.Sum256(data)
	return content, nil
}

const ttlFile = "ttl.json"

// SaveTTL needs no fsync of its own: an older state only makes a check expire sooner.
func (s *Store) SaveTTL(states map[string]TTLState) error {
	data, err := json.Marshal(states)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(s.fs, filepath.Join(s.state, ttlFile), data, 0o600)
}

// LoadTTL reads what SaveTTL wrote; nil when there is nothing.
func (s *Store) LoadTTL() map[string]TTLState {
	data, err := vfs.ReadFile(s.fs, filepath.Join(s.state, ttlFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	states := map[string]TTLState{}
	if err == nil {
		err = json.Unmarshal(data, &states)
	}
	if err != nil {
		s.log.Warn("the states of TTL checks are lost", "error", err)
		return nil
	}
	return states
}
