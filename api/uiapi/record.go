package uiapi

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
)

// A record is a session as it is kept over a restart: a version, when it began and was used last (so that what is over
// can be removed unopened), and the person with their tokens, encrypted under a key that is made of the cookie's value.
// That value has 130 random bits and is the browser's alone: the server keeps its hash, which is the record's name and
// gives no key. So a disk that was stolen or copied opens no session, and neither does the server before the browser
// has come. docs/decisions/0008-sessions-over-a-restart.md weighs this.
const (
	recordVersion = 1
	recordHead    = 1 + 8 + 8 // version, began, was; in seconds since 1970
	recordInfo    = "corbel web UI session 1"
	maxRecord     = 64 << 10
)

var errRecord = errors.New("this is no record of a session that the cookie opens")

func nameOf(key [sha256.Size]byte) string { return hex.EncodeToString(key[:]) }

// seal makes the record of a session; nil where that cannot be.
func seal(id string, p *Person, began, was time.Time) []byte {
	text, err := json.Marshal(p)
	if err != nil || len(text) > maxRecord/2 {
		return nil
	}
	box, err := boxOf(id)
	if err != nil {
		return nil
	}
	head := binary.BigEndian.AppendUint64([]byte{recordVersion}, uint64(began.Unix()))
	head = binary.BigEndian.AppendUint64(head, uint64(was.Unix()))
	return box.Seal(head, nil, text, head)
}

// readRecord reads what a record tells unopened.
func readRecord(name string, record []byte) (key [sha256.Size]byte, began, was time.Time, ok bool) {
	hash, err := hex.DecodeString(name)
	if err != nil || len(hash) != len(key) || len(record) < recordHead || len(record) > maxRecord ||
		record[0] != recordVersion {
		return key, began, was, false
	}
	seconds := func(at int) time.Time { return time.Unix(int64(binary.BigEndian.Uint64(record[at:])), 0) }
	return [sha256.Size]byte(hash), seconds(1), seconds(9), true
}

// open reads the person of a record.
func open(id string, record []byte) (*Person, error) {
	box, err := boxOf(id)
	if err != nil {
		return nil, err
	}
	if len(record) < recordHead {
		return nil, errRecord
	}
	text, err := box.Open(nil, nil, record[recordHead:], record[:recordHead])
	if err != nil {
		return nil, errRecord
	}
	p := &Person{}
	return p, json.Unmarshal(text, p)
}

func boxOf(id string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(id), nil, recordInfo, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
