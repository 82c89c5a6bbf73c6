package logstore

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vfs"
)

// A slot file holds two copies at slotBytes from each other, so that no torn
// write spoils both: crc32c, payload length, sequence number, payload.
const (
	slotBytes     = 4096
	slotHeadBytes = 16
	markName      = "MARK"
	stableName    = "STABLE"
)

func encodeSlot(seq uint64, payload []byte) []byte {
	b := make([]byte, slotHeadBytes, slotHeadBytes+len(payload))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint64(b[8:], seq)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

func decodeSlot(b []byte) (uint64, []byte, bool) {
	if len(b) < slotHeadBytes {
		return 0, nil, false
	}
	n := int(binary.LittleEndian.Uint32(b[4:]))
	if n > len(b)-slotHeadBytes || crc32.Checksum(b[4:slotHeadBytes+n], castagnoli) != binary.LittleEndian.Uint32(b) {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint64(b[8:]), b[slotHeadBytes : slotHeadBytes+n], true
}

// openSlots opens or makes the file with first in both slots; it returns the newest sound payload and how many slots
// are sound.
func openSlots(fsys vfs.FS, path string, expected bool, first []byte) (vfs.File, uint64, []byte, int, error) {
	f, err := fsys.OpenFile(path, os.O_RDWR, 0)
	if missing(err) || (err == nil && !expected) {
		if err == nil {
			_ = f.Close() // left by a start that did not finish
		}
		if expected {
			return nil, 0, nil, 0, &Damage{File: path, What: "the file is gone"}
		}
		return makeSlots(fsys, path, first)
	}
	if err != nil {
		return nil, 0, nil, 0, err
	}
	data, err := readAll(f)
	if err != nil {
		_ = f.Close()
		return nil, 0, nil, 0, err
	}
	var seq uint64
	var payload []byte
	sound := 0
	for at := 0; at < 2*slotBytes && at < len(data); at += slotBytes {
		if n, p, ok := decodeSlot(data[at:min(at+slotBytes, len(data))]); ok {
			sound++
			if n >= seq {
				seq, payload = n, slices.Clone(p)
			}
		}
	}
	if sound == 0 {
		_ = f.Close()
		return nil, 0, nil, 0, &Damage{File: path, What: "neither copy verifies"}
	}
	return f, seq, payload, sound, nil
}

func makeSlots(fsys vfs.FS, path string, first []byte) (vfs.File, uint64, []byte, int, error) {
	f, err := fsys.Create(path)
	if err != nil {
		return nil, 0, nil, 0, err
	}
	if err = f.Preallocate(2 * slotBytes); err == nil {
		_, err = f.WriteAt(encodeSlot(1, first), 0)
	}
	if err == nil {
		_, err = f.WriteAt(encodeSlot(1, first), slotBytes)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, nil, 0, err
	}
	return f, 1, first, 2, nil
}

// markFile remembers the newest durable index. Writes alternate between the slots.
// Invariant: what it holds was true of the disk when it was written, and is lowered durably before the log is.
type markFile struct {
	file  vfs.File
	seq   uint64
	last  uint64
	dirty bool
}

func openMark(fsys vfs.FS, path string, expected bool) (*markFile, error) {
	f, seq, payload, _, err := openSlots(fsys, path, expected, make([]byte, 8))
	if err != nil {
		return nil, err
	}
	if len(payload) != 8 {
		_ = f.Close()
		return nil, &Damage{File: path, What: "the mark has a wrong length"}
	}
	return &markFile{file: f, seq: seq, last: binary.LittleEndian.Uint64(payload)}, nil
}

func (m *markFile) set(last uint64, durable bool) error {
	var payload [8]byte
	binary.LittleEndian.PutUint64(payload[:], last)
	m.seq++
	if _, err := m.file.WriteAt(encodeSlot(m.seq, payload[:]), int64(m.seq%2)*slotBytes); err != nil {
		return err
	}
	m.last, m.dirty = last, true
	if durable {
		return m.flush()
	}
	return nil
}

func (m *markFile) flush() error {
	if !m.dirty {
		return nil
	}
	m.dirty = false
	return m.file.Sync()
}

// stableFile holds a few small values. Each change is written and fsynced to one
// slot and then to the other: whichever slot breaks later, the other one holds
// at least what was acknowledged last.
type stableFile struct {
	mu       sync.Mutex
	file     vfs.File
	seq      uint64
	values   map[string][]byte
	repaired bool
}

func openStable(fsys vfs.FS, path, _ string, expected bool) (*stableFile, error) {
	f, seq, payload, sound, err := openSlots(fsys, path, expected, pack.Uint(nil, 0))
	if err != nil {
		return nil, err
	}
	values, ok := decodeValues(payload)
	if !ok {
		_ = f.Close()
		return nil, &Damage{File: path, What: "the values do not decode"}
	}
	st := &stableFile{file: f, seq: seq, values: values, repaired: sound < 2}
	// Both slots must hold the newest again before anything is promised on top of it.
	if err := st.write(values); err != nil {
		_ = f.Close()
		return nil, err
	}
	return st, nil
}

func encodeValues(values map[string][]byte) []byte {
	b := pack.Uint(nil, uint64(len(values)))
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b = pack.Bytes(pack.String(b, k), values[k])
	}
	return b
}

func decodeValues(b []byte) (map[string][]byte, bool) {
	r := pack.Read(b)
	values := map[string][]byte{}
	for range r.Count() {
		k := r.String()
		values[k] = slices.Clone(r.Bytes())
	}
	return values, r.Err() == nil
}

// write needs mu (or Open).
func (st *stableFile) write(values map[string][]byte) error {
	b := encodeSlot(st.seq+1, encodeValues(values))
	if len(b) > slotBytes {
		return errkind.New(errkind.TooLarge, "stable store: values do not fit their slot")
	}
	for at := int64(0); at < 2*slotBytes; at += slotBytes {
		if _, err := st.file.WriteAt(b, at); err != nil {
			return err
		}
		if err := st.file.Sync(); err != nil {
			return err
		}
	}
	st.seq++
	st.values = values
	return nil
}

func (st *stableFile) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	_ = st.file.Close() // every write was synced
}
