package barrier

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"corbel.dev/corbel/kit/errkind"
)

// A record is term (4 bytes, big endian), version, nonce, ciphertext and tag.
// Version 1 has no additional data, version 2 the storage key (contract 6.9);
// both are read, 2 is written.
const (
	keyBytes    = 32
	nonceBytes  = 12
	tagBytes    = 16
	headBytes   = 4 + 1 + nonceBytes
	versionBare = 1
	versionKey  = 2
)

// Overhead is how many bytes longer a record is than what it holds.
const Overhead = headBytes + tagBytes

// key is one term's key. Immutable but for its counters.
type key struct {
	term      uint32
	value     []byte
	installed time.Time
	aead      cipher.AEAD
	nonces    atomic.Pointer[nonces]
	before    uint64        // encryptions of earlier lives of the process, as last saved
	count     atomic.Uint64 // of this one
}

// nonces are 2^32 nonces behind a random prefix: counted, so that they are not
// drawn by lot for each record, which would bound a key's life to 2^32 records.
type nonces struct {
	prefix [nonceBytes - 4]byte
	used   atomic.Uint64
}

func newKey(term uint32, value []byte, installed time.Time, before uint64) (*key, error) {
	if len(value) != keyBytes {
		return nil, fmt.Errorf("the key of term %d has %d bytes, not %d", term, len(value), keyBytes)
	}
	block, err := aes.NewCipher(value)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	k := &key{term: term, value: value, installed: installed, aead: aead, before: before}
	k.nonces.Store(drawNonces())
	return k, nil
}

func drawNonces() *nonces {
	n := &nonces{}
	_, _ = rand.Read(n.prefix[:]) // never fails: the program ends instead
	return n
}

// nonce appends a nonce that this key has not had.
func (k *key) nonce(dst []byte) []byte {
	for {
		n := k.nonces.Load()
		i := n.used.Add(1) - 1
		if i <= 1<<32-1 {
			return binary.BigEndian.AppendUint32(append(dst, n.prefix[:]...), uint32(i))
		}
		k.nonces.CompareAndSwap(n, drawNonces())
	}
}

// seal makes the record of plain under the storage key.
func (k *key) seal(at string, plain []byte) []byte {
	record := make([]byte, 0, len(plain)+Overhead)
	record = binary.BigEndian.AppendUint32(record, k.term)
	record = append(record, versionKey)
	record = k.nonce(record)
	k.count.Add(1)
	return k.aead.Seal(record, record[5:headBytes], plain, bytesOf(at))
}

var errShort = errors.New("the record is too short")

// open gives what a record holds; find gives the key of a term, or nil.
func open(find func(term uint32) *key, at string, record []byte) ([]byte, error) {
	if len(record) < Overhead {
		return nil, damaged(at, errShort)
	}
	term, version := binary.BigEndian.Uint32(record), record[4]
	k := find(term)
	if k == nil {
		return nil, damaged(at, fmt.Errorf("there is no key of term %d", term))
	}
	var bound []byte
	switch version {
	case versionBare:
	case versionKey:
		bound = bytesOf(at)
	default:
		return nil, damaged(at, fmt.Errorf("the record has version %d", version))
	}
	plain, err := k.aead.Open(nil, record[5:headBytes], record[headBytes:], bound)
	if err != nil {
		return nil, damaged(at, errors.New("the record does not belong here or was changed"))
	}
	if plain == nil {
		plain = []byte{}
	}
	return plain, nil
}

// bytesOf gives the bytes of a text, for who reads them only: additional data is read.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// damaged is the error of a record that does not open. It never quotes the record.
func damaged(at string, why error) error {
	return errkind.E(errkind.Corrupt, "barrier", fmt.Errorf("%s: %w", at, why))
}
