// Package password hashes passwords with bcrypt, and lets short work through meanwhile.
//
// A hash takes tens of milliseconds. Go's scheduler leaves a computation on its core for ten of them and looks for
// arrived requests after the computations that can go on; with a hash on each core a read of some
// microseconds would wait for milliseconds. Hashes are therefore made in slices: after each one its core answers what
// has arrived. What comes out is golang.org/x/crypto/bcrypt's, bit by bit, in either direction.
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
	"time"

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

var encoding = base64.NewEncoding("./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789").WithPadding(base64.NoPadding)

// Hash returns the bcrypt hash of password with 2^cost rounds (4 to 31) and a new salt. Errors: ErrTooLong; a wrong cost; ctx's end.
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

// Matches says whether hash is that of password; what is no bcrypt hash matches nothing. Of a password longer than Longest the first
// bytes count, as in the library. The error is ctx's.
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

// slice is how long a hash keeps its core before what has arrived is looked for: a tenth of what the scheduler would give it.
const slice = time.Millisecond

// digest is bcrypt of password and salt.
func digest(ctx context.Context, password, salt []byte, cost int) ([]byte, error) {
	key := append(password[:len(password):len(password)], 0)
	defer clear(key)
	c, err := blowfish.NewSaltedCipher(key, salt)
	if err != nil {
		return nil, err
	}
	since := time.Now()
	for range uint64(1) << cost {
		blowfish.ExpandKey(key, c)
		blowfish.ExpandKey(salt, c)
		if time.Since(since) < slice {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		giveWay()
		since = time.Now()
	}
	sum := []byte("OrpheanBeholderScryDoubt")
	for i := 0; i < len(sum); i += blowfish.BlockSize {
		for range 64 {
			c.Encrypt(sum[i:i+blowfish.BlockSize], sum[i:i+blowfish.BlockSize])
		}
	}
	return sum[:sumBytes], nil
}

// giveWay lets everything run that can. Gosched alone would not do: while a computation waits for its turn again nobody looks whether
// requests have arrived. The shortest sleep makes the core look, and what it found then runs before this does.
func giveWay() {
	time.Sleep(time.Microsecond)
	runtime.Gosched()
}
