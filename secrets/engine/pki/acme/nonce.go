package acme

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
)

// nonceWindow is how many nonces back are still good: 128 KiB of marks, and more than clients hold at a time.
const nonceWindow = 1 << 20

// Nonces are numbers that are good once: a count and a mark that nobody else can make. The zero value is ready for use
// by any goroutine. Invariant: used has a bit for each of the last nonceWindow counts.
type Nonces struct {
	mu   sync.Mutex // guards all below
	key  []byte
	last uint64
	used []uint64 // bits, by count modulo nonceWindow
}

const nonceBytes, nonceMark = 24, 16

// New makes a nonce.
func (n *Nonces) New() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.key == nil {
		n.key = make([]byte, 32)
		_, _ = rand.Read(n.key) // does not fail
		n.used = make([]uint64, nonceWindow/64)
	}
	n.last++
	at := n.last % nonceWindow
	n.used[at/64] &^= 1 << (at % 64)
	return base64.RawURLEncoding.EncodeToString(n.markedLocked(n.last))
}

func (n *Nonces) markedLocked(count uint64) []byte {
	out := binary.BigEndian.AppendUint64(make([]byte, 0, nonceBytes), count)
	mac := hmac.New(sha256.New, n.key)
	mac.Write(out)
	return append(out, mac.Sum(nil)[:nonceMark]...)
}

// Use reports whether a nonce is good, which it never is again.
func (n *Nonces) Use(text string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != nonceBytes {
		return false
	}
	count := binary.BigEndian.Uint64(raw)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.key == nil || !hmac.Equal(raw, n.markedLocked(count)) || count+nonceWindow <= n.last {
		return false
	}
	at := count % nonceWindow
	if n.used[at/64]&(1<<(at%64)) != 0 {
		return false
	}
	n.used[at/64] |= 1 << (at % 64)
	return true
}
