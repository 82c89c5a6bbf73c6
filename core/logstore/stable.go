package logstore

import (
	"encoding/binary"
	"maps"
	"path/filepath"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// Set stores a value durably. Setting what is there already costs nothing.
func (s *Store) Set(key, val []byte) error {
	s.stable.mu.Lock()
	defer s.stable.mu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	if old, ok := s.stable.values[string(key)]; ok && string(old) == string(val) {
		return nil
	}
	values := maps.Clone(s.stable.values)
	values[string(key)] = slices.Clone(val)
	began := s.watch.begin(opStable)
	err := s.stable.write(values)
	s.watch.end(opStable, began)
	if err != nil {
		if errkind.Is(err, errkind.TooLarge) {
			return err
		}
		return s.fail("write term and vote", err)
	}
	s.counts.fsyncs.Add(2)
	return nil
}

// Get returns a value, or ErrNotFound.
func (s *Store) Get(key []byte) ([]byte, error) {
	s.stable.mu.Lock()
	defer s.stable.mu.Unlock()
	val, ok := s.stable.values[string(key)]
	if !ok {
		return nil, ErrNotFound
	}
	return slices.Clone(val), nil
}

// SetUint64 stores a number durably.
func (s *Store) SetUint64(key []byte, val uint64) error {
	return s.Set(key, binary.LittleEndian.AppendUint64(nil, val))
}

// GetUint64 returns a number, or ErrNotFound.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	val, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(val) != 8 {
		return 0, errkind.Errorf(errkind.Corrupt, "log store %s: value of %q has %d bytes", s.cfg.Group, key, len(val))
	}
	return binary.LittleEndian.Uint64(val), nil
}

// ReadStable reads term and vote from the folder of a log that cannot be opened.
func ReadStable(fsys vfs.FS, dir string) (map[string][]byte, error) {
	f, _, payload, _, err := openSlots(fsys, filepath.Join(dir, stableName), true, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	values, ok := decodeValues(payload)
	if !ok {
		return nil, errkind.New(errkind.Corrupt, "stable store: the values do not decode")
	}
	return values, nil
}
