// Package users finds out who somebody is: by password, which is hashed once and remembered as a keyed digest while
// it holds.
//
// Hashing is bounded by a fair queue, so a fleet that comes back together is served as fast as the
// cores hash and no faster; an agents' password, which thousands share, is hashed once. What is
// remembered is useless outside of this process, and is of no use once the user's hash has changed.
package users

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/password"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/resources"
)

// ErrWrong is the answer to a wrong name or password, and to a disabled user.
var ErrWrong = errkind.New(errkind.Denied, "bad credentials")

// nobody is compared with where there is no such user, so that an unknown name takes as long as a wrong password.
var nobody = []byte("$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy")

// remembered bounds how many logins are remembered; when it is reached all are forgotten.
const remembered = 10_000

// DefaultCost is the cost of bcrypt that Sensu hashes with: two to its power rounds.
const DefaultCost = 10

// Config is what a Users works on.
type Config struct {
	Resources *resources.Resources
	// Cost of new hashes; zero is DefaultCost. Less is for tests.
	Cost int
	// PublishedFromHostOnly has AgentPassword, which everybody knows, log in from loopback addresses alone, whoever's it
	// is.
	PublishedFromHostOnly bool
	// Log says that such a login was refused; nil says nothing.
	Log *slog.Logger
}

// Users checks passwords. All methods may be called from any goroutine.
type Users struct {
	resources *resources.Resources
	cost      int
	nobody    []byte
	gate      *limit.Gate
	key       [32]byte
	hostOnly  bool // Config.PublishedFromHostOnly
	log       *slog.Logger
	told      atomic.Int64 // Unix second of the newest line about it

	mu   sync.Mutex
	good map[[32]byte]struct{}
}

// New returns a Users over the configuration's users.
func New(c Config) *Users {
	u := &Users{resources: c.Resources, cost: cmp.Or(c.Cost, DefaultCost), nobody: nobody, good: map[[32]byte]struct{}{},
		hostOnly: c.PublishedFromHostOnly, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		gate: limit.NewGate(limit.GateConfig{Name: "password checks", Slots: runtime.GOMAXPROCS(0), MaxWaiting: 50_000,
			MaxPerKey: 50_000, MaxWait: 14 * time.Second})}
	_, _ = rand.Read(u.key[:])
	if u.cost != DefaultCost {
		if hash, err := password.Hash(context.Background(), u.key[:], u.cost); err == nil {
			u.nobody = hash
		}
	}
	return u
}

// Login returns who has the name and password. from is whose turn it is in the queue, an address. Errors: ErrWrong;
// Overloaded, who waits too long.
func (u *Users) Login(ctx context.Context, from, name, text string) (monitor.Caller, error) {
	if u.hostOnly && text == AgentPassword && !ofHost(from) {
		u.tell(from, name)
		return monitor.Caller{}, ErrWrong
	}
	hash, caller := u.nobody, monitor.Caller{}
	if item := u.resources.View().Get("users", "", name); item != nil {
		if user := item.Object().(*monitor.User); !user.Disabled && user.PasswordHash != "" {
			hash, caller = []byte(user.PasswordHash), monitor.Caller{User: name, Groups: user.Groups}
		}
	}
	digest := u.digest(name, hash, text)
	u.mu.Lock()
	_, known := u.good[digest]
	u.mu.Unlock()
	if known && caller.User != "" {
		return caller, nil
	}
	permit, err := u.gate.Acquire(ctx, from)
	if err != nil {
		return monitor.Caller{}, err
	}
	defer permit.Release()
	u.mu.Lock()
	_, known = u.good[digest] // whoever was before us in the queue may have brought the same
	u.mu.Unlock()
	if !known {
		if known, err = password.Matches(ctx, hash, []byte(text)); err != nil {
			return monitor.Caller{}, err
		}
	}
	if !known || caller.User == "" {
		return monitor.Caller{}, ErrWrong
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.good) >= remembered {
		clear(u.good)
	}
	u.good[digest] = struct{}{}
	return caller, nil
}

// ofHost tells whether an address, with or without a port, is of this host.
func ofHost(from string) bool {
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	addr, err := netip.ParseAddr(from)
	return err == nil && addr.Unmap().IsLoopback()
}

// tell says once a minute that a published password was refused: a fleet brings it again and again.
func (u *Users) tell(from, name string) {
	now := time.Now().Unix()
	if last := u.told.Load(); now-last >= 60 && u.told.CompareAndSwap(last, now) {
		u.log.Warn("a login with Sensu's published password was refused: it is taken from this host alone; give the user "+
			"another one (sensuctl user reset-password), and its agents too",
			"user", name, "from", from)
	}
}

// Named returns who has a name that was proved in another way than by a password; false is nobody, or somebody who is
// disabled.
func (u *Users) Named(name string) (monitor.Caller, bool) {
	item := u.resources.View().Get("users", "", name)
	if item == nil || item.Object().(*monitor.User).Disabled {
		return monitor.Caller{}, false
	}
	return monitor.Caller{User: name, Groups: item.Object().(*monitor.User).Groups}, true
}

// Hash makes what is kept of a new password. It waits for its turn as Login does.
func (u *Users) Hash(ctx context.Context, from, text string) (string, error) {
	permit, err := u.gate.Acquire(ctx, from)
	if err != nil {
		return "", err
	}
	defer permit.Release()
	hash, err := password.Hash(ctx, []byte(text), u.cost)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return string(hash), errkind.E(errkind.Invalid, "password", err) // bcrypt takes 72 bytes at most
}

// digest tells one login from others; the hash is part of it, so a new password makes a new digest.
func (u *Users) digest(name string, hash []byte, text string) (out [32]byte) {
	mac := hmac.New(sha256.New, u.key[:])
	for _, part := range [][]byte{[]byte(name), hash, []byte(text)} {
		sum := sha256.Sum256(part)
		mac.Write(sum[:])
	}
	mac.Sum(out[:0])
	return out
}
