// Package password hashes passwords with bcrypt, and lets short work through meanwhile.
//
// A hash takes tens of milliseconds. Go's scheduler leaves a computation on its core for ten of them, and the kernel
// lets it go on for some when something else wakes up; with a hash on each core a read of some microseconds would
// wait for milliseconds. Each hash therefore has a slot of Go's scheduler beside those of the cores (slots.go), and a
// thread of a lower priority. How many are made at once is the caller's to bound. What comes out is
// golang.org/x/crypto/bcrypt's, bit by bit, in either direction.
//
// Source: Provos and Mazières, "A Future-Adaptable Password Scheme" (USENIX 1999).
package password

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"runtime"

	"golang.org/x/crypto/bcrypt"
	//lint:ignore SA1019 bcrypt is made of it
	"golang.org/x/crypto/blowfish"
)

// Longest is how many bytes a password has at most.
const Longest = 72

// ErrTooLong is the answer to a password of more than Longest bytes.
var ErrTooLong = bcrypt.ErrPasswordTooLong

const (
	saltBytes, saltText = 16, 22
	sumBytes, sumText   = 23, 31
)

var encoding = base64.NewEncoding("./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789").WithPadding(
	base64.NoPadding)

// Hash returns the bcrypt hash of password with 2^cost rounds (4 to 31) and a new salt. Errors: ErrTooLong; a wrong
// cost; ctx's end.
func Hash(ctx context.Context, password []byte, cost int) ([]byte, error) {
	if len(password) > Longest {
		return nil, ErrTooLong
	}
	if cost < bcrypt.MinCost || cost > bcrypt.MaxCost {
		return nil, bcrypt.InvalidCostError(cost)
	}
	var salt [saltBytes]byte
	_, _ = rand.Read(salt[:]) // never fails
	sum, err := digest(ctx, password, salt[:], cost)
	if err != nil {
		return nil, err
	}
	out := fmt.Appendf(nil, "$2a$%02d$", cost)
	return encoding.AppendEncode(encoding.AppendEncode(out, salt[:]), sum), nil
}

// Matches says whether hash is that of password; what is no bcrypt hash matches nothing. Of a password longer than
// Longest the first bytes count, as in the library. The error is ctx's.
func Matches(ctx context.Context, hash, password []byte) (bool, error) {
	cost, err := bcrypt.Cost(hash)
	if err != nil || len(hash) < saltText+sumText {
		return false, nil
	}
	tail := hash[len(hash)-saltText-sumText:]
	salt, err := encoding.AppendDecode(nil, tail[:saltText])
	if err != nil {
		return false, nil
	}
	sum, err := digest(ctx, password, salt, cost)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(encoding.AppendEncode(nil, sum), tail[saltText:]) == 1, nil
}

// digest is bcrypt of password and salt, computed aside.
func digest(ctx context.Context, password, salt []byte, cost int) (sum []byte, err error) {
	done := make(chan struct{})
	extra.take()
	go func() {
		defer close(done)
		defer extra.give()
		runtime.LockOSThread() // for good: the thread ends with this goroutine, since nobody may raise its priority again
		giveWay()
		sum, err = compute(ctx, password, salt, cost)
	}()
	<-done
	return sum, err
}

// glances is how many rounds go by until it is looked whether anybody still waits; a round takes some 50 us.
const glances = 64

func compute(ctx context.Context, password, salt []byte, cost int) ([]byte, error) {
	key := append(password[:len(password):len(password)], 0)
	defer clear(key)
	c, err := blowfish.NewSaltedCipher(key, salt)
	if err != nil {
		return nil, err
	}
	for i := range uint64(1) << cost {
		if i%glances == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		blowfish.ExpandKey(key, c)
		blowfish.ExpandKey(salt, c)
	}
	sum := []byte("OrpheanBeholderScryDoubt")
	for i := 0; i < len(sum); i += blowfish.BlockSize {
		for range 64 {
			c.Encrypt(sum[i:i+blowfish.BlockSize], sum[i:i+blowfish.BlockSize])
		}
	}
	return sum[:sumBytes], nil
}
