package token

import (
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

// DuePrefix is where the entries of the expiry index are: in the order of time,
// so that what is due is one scan whatever else there is.
const DuePrefix = "sys/expire/at/"

// DueKey is the entry of what ends at a time.
func DueKey(at time.Time, name string) string {
	return string(append(append(appendTime(make([]byte, 0, len(DuePrefix)+timeDigits+1+len(name)), at), '/'), name...))
}

// timeDigits is the width of a time in the index, so that the order of texts is that of times.
const timeDigits = 20

func appendTime(key []byte, at time.Time) []byte {
	var digits [timeDigits]byte
	n := max(at.UnixNano(), 0)
	for i := range digits {
		digits[timeDigits-1-i] = byte('0' + n%10)
		n /= 10
	}
	return append(append(key, DuePrefix...), digits[:]...)
}

// DueEnd is the end of the range of entries that are due by now, for a scan.
func DueEnd(now time.Time) string { return fmt.Sprintf("%s%020d", DuePrefix, max(now.UnixNano(), 0)+1) }

// DueName is the name that an entry of the index is about.
func DueName(key string) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(key, DuePrefix), "/")
	return name
}

// due gives the operations that bring the token's entry in the index to where it
// must be. A renewal that only lengthens leaves it where it is: whoever finds
// it due moves it (Move), so renewals write one record however many come.
func (t *Token) due(move bool) (ops []secrets.Op) {
	if t.Expires.Equal(t.Indexed) || (!move && !t.Indexed.IsZero() && t.Expires.After(t.Indexed)) {
		return nil
	}
	if !t.Indexed.IsZero() {
		ops = append(ops, storage.Delete(DueKey(t.Indexed, t.Hash)))
	}
	if t.Indexed = t.Expires; !t.Indexed.IsZero() {
		ops = append(ops, storage.Mark(DueKey(t.Indexed, t.Hash)))
	}
	return ops
}

// Renewed gives the operations that store a token after its end was changed.
func Renewed(t *Token) []secrets.Op { return stored(t, false) }

// Move gives the operations that put a token's entry in the index to its end.
func Move(t *Token) []secrets.Op { return stored(t, true) }

func stored(t *Token, move bool) []secrets.Op { return append(t.due(move), Store(t)) }
