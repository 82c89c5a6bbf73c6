package password

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

func TestAgainstTheLibrary(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	r := rand.New(random)
	for _, n := range []int{0, 1, 7, 8, 30, 55, 56, 57, 71, 72} {
		text := make([]byte, n)
		_, _ = random.Read(text)
		cost := bcrypt.MinCost + r.IntN(3)
		ours, err := Hash(t.Context(), text, cost)
		if err != nil {
			t.Fatal(err)
		}
		if err := bcrypt.CompareHashAndPassword(ours, text); err != nil {
			t.Errorf("%d bytes: the library refuses %s: %v", n, ours, err)
		}
		if got, err := bcrypt.Cost(ours); got != cost || err != nil {
			t.Errorf("%s: cost %d, %v", ours, got, err)
		}
		theirs, err := bcrypt.GenerateFromPassword(text, cost)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := Matches(t.Context(), theirs, text); !ok || err != nil {
			t.Errorf("%d bytes: %s is refused: %v", n, theirs, err)
		}
		for _, other := range [][]byte{append(bytes.Clone(text[:n/2]), 'x'), append([]byte{'x'}, text[:n/2]...)} {
			theirs := bcrypt.CompareHashAndPassword(ours, other) == nil
			if ok, err := Matches(t.Context(), ours, other); ok != theirs || err != nil {
				t.Errorf("%x as %x: %v, %v; the library says %v", text, other, ok, err, theirs)
			}
		}
	}
}

// Hashes of other programs, from the test vectors of OpenBSD and of crypt_blowfish.
func TestVectors(t *testing.T) {
	for _, c := range []struct{ hash, text string }{
		{"$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"},
		{"$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK", "U*U*"},
		{"$2a$05$XXXXXXXXXXXXXXXXXXXXXOAcXxm9kjPGEMsLznoKqmqw7tc8WCx4a", "U*U*U"},
		{"$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"},
	} {
		if ok, err := Matches(t.Context(), []byte(c.hash), []byte(c.text)); !ok || err != nil {
			t.Errorf("%s: %v, %v", c.hash, ok, err)
		}
	}
	for _, hash := range []string{"", "x", "$2a$", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOe",
		"$3a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
		"$2a$99$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
		"$2a$05$!!!!!!!!!!!!!!!!!!!!!.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"} {
		if ok, err := Matches(t.Context(), []byte(hash), []byte("U*U")); ok || err != nil {
			t.Errorf("%s: %v, %v", hash, ok, err)
		}
	}
}

func TestRefused(t *testing.T) {
	if _, err := Hash(t.Context(), make([]byte, Longest+1), 4); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	for _, cost := range []int{-1, 3, 32} {
		if _, err := Hash(t.Context(), nil, cost); err == nil {
			t.Errorf("cost %d is taken", cost)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Hash(ctx, nil, 12); !errors.Is(err, context.Canceled) {
		t.Errorf("who went away: %v", err)
	}
}

// BenchmarkReadsBesideHashes is how long something short waits for its turn while every core hashes.
func BenchmarkReadsBesideHashes(b *testing.B) {
	for _, c := range []struct {
		name string
		hash func(context.Context) error
	}{
		{"slices", func(ctx context.Context) error { _, err := Hash(ctx, []byte("correct horse"), 10); return err }},
		{"library", func(context.Context) error {
			_, err := bcrypt.GenerateFromPassword([]byte("correct horse"), 10)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			var all sync.WaitGroup
			var hashes int64
			var mu sync.Mutex
			for range runtime.GOMAXPROCS(0) {
				all.Go(func() {
					for ctx.Err() == nil && c.hash(ctx) == nil {
						mu.Lock()
						hashes++
						mu.Unlock()
					}
				})
			}
			start := time.Now()
			var worst, sum time.Duration
			for b.Loop() {
				<-time.After(100 * time.Microsecond)
				begin := time.Now()
				done := make(chan struct{})
				go close(done)
				<-done
				took := time.Since(begin)
				worst, sum = max(worst, took), sum+took
			}
			b.ReportMetric(float64(hashes)/time.Since(start).Seconds(), "hashes/s")
			b.ReportMetric(float64(worst.Microseconds()), "worst-us")
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "mean-us")
			cancel()
			all.Wait()
		})
	}
}
