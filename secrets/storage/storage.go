// Package storage is what the secrets plane asks of a place that keeps its
// records, whatever that is: our Raft group, PostgreSQL, objects, files, memory.
//
// A backend keeps opaque values under keys of segments joined by '/'. What a
// caller was told is true: a commit that returned nil is durable, to the degree
// that Durability states, and is seen by every read that begins after; a commit
// is whole or absent, also after a crash. Writers are fenced by epoch: a commit
// with an epoch that is not the newest is refused whole with ErrFenced, so that
// a former leader that wakes up writes nothing.
//
// All methods may be called from any goroutine. Errors have kinds of
// kit/errkind: Unavailable and Overloaded mean that nothing was done and may be
// tried again, Unknown that a commit may have happened.
package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// Op is one change.
type Op = secrets.Op

// Record is a key with its value.
type Record = secrets.Record

// Put makes the operation that sets a key. value is kept: it must not change afterwards.
func Put(key string, value []byte) Op {
	if value == nil {
		value = []byte{}
	}
	return Op{Key: key, Value: value}
}

// marked is the value of all entries that Mark makes.
var marked = []byte{'.'}

// Mark makes the operation that sets a key which says all: an entry of an index. There is
// nothing to encrypt and nothing to bind, so the barrier stores the value as it is, and
// does not open it: such entries are read with Scan of the backend, for their keys.
func Mark(key string) Op { return Op{Key: key, Value: marked} }

// IsMark reports whether Mark made the operation.
func IsMark(op Op) bool { return len(op.Value) == 1 && &op.Value[0] == &marked[0] }

// Delete makes the operation that removes a key.
func Delete(key string) Op { return Op{Key: key} }

// Epoch numbers the terms of writers; greater is later. Zero writes only
// where nobody has ever fenced: single-node backends and tests.
type Epoch uint64

// Backend keeps records.
type Backend interface {
	// Get returns the value under key; ok is false when there is none. The caller must not change it.
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
	// List returns the children of a folder in the order of bytes: keys directly
	// below it, and folders with '/' at their end. prefix is "" or ends in '/'.
	// Only names greater than after are given, and limit of them at most; 0 is all.
	List(ctx context.Context, prefix, after string, limit int) ([]string, error)
	// Scan returns the records with from <= key < to in the order of keys, limit of
	// them at most; 0 is all. An empty to is no end.
	Scan(ctx context.Context, from, to string, limit int) ([]Record, error)
	// Commit does all of ops or none, durably. Of two operations on one key the later counts.
	Commit(ctx context.Context, epoch Epoch, ops []Op) error
	// Fence makes epoch the newest. It fails with ErrFenced when a newer one is known.
	Fence(ctx context.Context, epoch Epoch) error
	// Info describes the backend.
	Info() Info
	// Close ends its work; what was committed stays. It is idempotent.
	Close() error
}

// Info says what a backend is and promises.
type Info struct {
	Name       string // as in the configuration: "raft", "postgresql", "file", "inmem"
	Durability string // one line for operators: what survives what
	HA         bool   // several servers may share it, one of them writing
	ValueBytes int    // the largest value; 0: no limit of its own
	BatchCount int    // the most operations of a commit; 0: no limit of its own
}

// ErrFenced says that a newer writer leads.
var ErrFenced = errors.New("another server has become the active one")

// Fenced is the error of a commit with an old epoch.
func Fenced(got, newest Epoch) error {
	return errkind.E(errkind.NotLeader, "storage", fmt.Errorf("%w (epoch %d, newest %d)", ErrFenced, got, newest))
}

// keyBytes bounds a key; PostgreSQL's index rows and file systems' paths are near it.
const keyBytes = 2048

// CheckKey reports what is wrong with a key: backends lay keys out as paths,
// rows and object names, and none of those takes every string.
func CheckKey(key string) error {
	switch {
	case key == "":
		return errors.New("key: is empty")
	case len(key) > keyBytes:
		return fmt.Errorf("key: has %d bytes, more than %d", len(key), keyBytes)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return errors.New("key: is not UTF-8 without NUL")
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("key %q: has an empty, '.' or '..' segment", key)
		}
	}
	return nil
}

// CheckOps checks a batch against what every backend refuses and the limits of one.
func CheckOps(info Info, ops []Op) error {
	if info.BatchCount > 0 && len(ops) > info.BatchCount {
		return errkind.E(errkind.TooLarge, "storage", fmt.Errorf("%d operations in one commit, more than the %d of %s",
			len(ops), info.BatchCount, info.Name))
	}
	for _, op := range ops {
		if err := CheckKey(op.Key); err != nil {
			return errkind.E(errkind.Invalid, "storage", err)
		}
		if info.ValueBytes > 0 && len(op.Value) > info.ValueBytes {
			return errkind.E(errkind.TooLarge, "storage", fmt.Errorf("%s: %d bytes, more than the %d of %s", op.Key,
				len(op.Value), info.ValueBytes, info.Name))
		}
	}
	return nil
}

// CheckPrefix checks the prefix of a List.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	folder, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return errkind.E(errkind.Invalid, "storage", fmt.Errorf("prefix %q: does not end in '/'", prefix))
	}
	if err := CheckKey(folder); err != nil {
		return errkind.E(errkind.Invalid, "storage", err)
	}
	return nil
}

// After returns the least string that is greater than every string with the prefix, for Scan; "" is no end.
func After(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}

// PutJSON is Put of a value as JSON.
func PutJSON(key string, v any) (Op, error) {
	raw, err := json.Marshal(v)
	return Put(key, raw), err
}
