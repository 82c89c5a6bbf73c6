// Package quota bounds what callers may do by path: requests a second of one
// address, and leases that live at once.
//
// Of the rules that fit a request the most specific counts alone, of each type: role at a mount, path (longest
// first), mount, everything. A Set is immutable; its rules keep their counts when another Set takes them over. Judging
// a request takes no lock that another address shares for long, and nothing is counted without rules.
//
// All methods may be called from any goroutine.
package quota

import (
	"fmt"
	"hash/maphash"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// The types of rules.
const (
	RateLimit  = "rate-limit"
	LeaseCount = "lease-count"
)

// Rule is a quota as it is stored.
type Rule struct {
	Name        string        `json:"name"`
	Type        string        `json:"type"`
	Path        string        `json:"path"` // "" is everything; a mount's ends in '/'; "*" at the end is a prefix
	Role        string        `json:"role,omitempty"`
	Rate        float64       `json:"rate,omitempty"` // requests in Interval
	Interval    time.Duration `json:"interval,omitempty"`
	Block       time.Duration `json:"block_interval,omitempty"` // how long who passed the rate is refused
	MaxLeases   int64         `json:"max_leases,omitempty"`
	Inheritable bool          `json:"inheritable,omitempty"`
	Space       string        `json:"namespace,omitempty"`      // UUID of its namespace; "": the root one
	SpacePath   string        `json:"namespace_path,omitempty"` // which Path begins with
}

// Check reports what is wrong with a rule, by the field's name.
func (r *Rule) Check() error {
	switch {
	case r.Name == "" || strings.ContainsAny(r.Name, "/ "):
		return errkind.New(errkind.Invalid, "field \"name\": must be one word")
	case r.Type == LeaseCount && r.MaxLeases <= 0:
		return errkind.New(errkind.Invalid, "field \"max_leases\": must be greater than 0")
	case r.Type == LeaseCount:
		return nil
	case math.IsNaN(r.Rate) || r.Rate <= 0 || r.Rate > 1e9:
		return errkind.New(errkind.Invalid, "field \"rate\": must be greater than 0, and at most 1000000000")
	case r.Interval < time.Second || r.Interval > 24*time.Hour:
		return errkind.New(errkind.Invalid, "field \"interval\": must be from 1s to 24h")
	case r.Block < 0 || r.Block > 24*time.Hour:
		return errkind.New(errkind.Invalid, "field \"block_interval\": must not be negative, and be at most 24h")
	}
	return nil
}

// Quota is a rule at work.
type Quota struct {
	Rule
	rate    *limit.Rate
	blocked blocks

	// Leases lived at the last count; Violations were refused.
	Leases, Violations atomic.Int64
}

// New puts a rule, which passes Check, to work.
func New(r Rule) *Quota {
	q := &Quota{Rule: r}
	if r.Type == RateLimit {
		// A whole interval's requests may come at once, as by Vault.
		q.rate = limit.NewRate(limit.RateConfig{PerSecond: r.Rate / r.Interval.Seconds(), Burst: int(math.Ceil(r.Rate))})
	}
	return q
}

// Settings are those of all quotas together.
type Settings struct {
	Exempt         []string `json:"rate_limit_exempt_paths"`          // beside DefaultExempt
	AbsoluteExempt []string `json:"absolute_rate_limit_exempt_paths"` // in the place of it
	Headers        bool     `json:"enable_rate_limit_response_headers"`
	AuditRefusals  bool     `json:"enable_rate_limit_audit_logging"`
}

// DefaultExempt are paths that no rate limit holds for: who cannot reach them cannot help.
var DefaultExempt = []string{"sys/generate-recovery-token/attempt", "sys/generate-recovery-token/update",
	"sys/generate-root/attempt",
	"sys/generate-root/update", "sys/health", "sys/seal-status", "sys/unseal"}

// Set is the rules of one moment, found by what they are for.
type Set struct {
	Settings
	exempt []string
	list   []*Quota
	byType map[string]*byPlace
}

type byPlace struct {
	roles  map[[2]string]*Quota // mount and role
	exact  map[string]*Quota
	prefix []*Quota // longest first
	mounts map[string]*Quota
	spaces map[string]*Quota // whole namespaces, by their paths
	global *Quota
}

// NewSet makes a set.
func NewSet(settings Settings, list []*Quota) *Set {
	s := &Set{Settings: settings, exempt: settings.AbsoluteExempt, list: slices.Clone(list), byType: map[string]*byPlace{}}
	if len(s.exempt) == 0 {
		s.exempt = append(slices.Clone(DefaultExempt), settings.Exempt...)
	}
	slices.SortFunc(s.list, func(a, b *Quota) int { return strings.Compare(a.Type+"/"+a.Name, b.Type+"/"+b.Name) })
	for _, q := range s.list {
		p := s.byType[q.Type]
		if p == nil {
			p = &byPlace{roles: map[[2]string]*Quota{}, exact: map[string]*Quota{}, mounts: map[string]*Quota{},
				spaces: map[string]*Quota{}}
			s.byType[q.Type] = p
		}
		switch {
		case q.Role != "":
			p.roles[[2]string{q.Path, q.Role}] = q
		case q.Path == "":
			p.global = q
		case q.Path == q.SpacePath:
			p.spaces[q.Path] = q
		case strings.HasSuffix(q.Path, "*"):
			p.prefix = append(p.prefix, q)
		case strings.HasSuffix(q.Path, "/"):
			p.mounts[q.Path] = q
		default:
			p.exact[q.Path] = q
		}
	}
	for _, p := range s.byType {
		slices.SortFunc(p.prefix, func(a, b *Quota) int { return len(b.Path) - len(a.Path) })
	}
	return s
}

// All lists the rules by type and name. Do not change the list.
func (s *Set) All() []*Quota {
	if s == nil {
		return nil
	}
	return s.list
}

// Find returns a rule of the root namespace by its name, or nil.
func (s *Set) Find(kind, name string) *Quota { return s.FindIn("", kind, name) }

// FindIn is Find of a namespace, by its UUID.
func (s *Set) FindIn(space, kind, name string) *Quota {
	for _, q := range s.All() {
		if q.Space == space && q.Type == kind && q.Name == name {
			return q
		}
	}
	return nil
}

// Place is what a request is for. Role is asked at most once, and only where a rule names one.
type Place struct {
	Path, Mount string // Mount "" is none; both are from the root
	Space       string // the path of the namespace; "": the root one
	Role        func() string
}

// of is the rule that counts, or nil.
func (s *Set) of(kind string, p Place) *Quota {
	if s == nil || s.byType[kind] == nil {
		return nil
	}
	b := s.byType[kind]
	if len(b.roles) > 0 && p.Role != nil {
		if role := p.Role(); role != "" {
			if q := b.roles[[2]string{p.Mount, role}]; q != nil {
				return q
			}
		}
	}
	if q := b.exact[strings.TrimSuffix(p.Path, "/")]; q != nil {
		return q
	}
	for _, q := range b.prefix {
		if strings.HasPrefix(p.Path, strings.TrimSuffix(q.Path, "*")) {
			return q
		}
	}
	if q := b.mounts[p.Mount]; q != nil {
		return q
	}
	for at := p.Space; at != "" && len(b.spaces) > 0; at = at[:strings.LastIndexByte(at[:len(at)-1], '/')+1] {
		if q := b.spaces[at]; q != nil && (at == p.Space || q.Inheritable) {
			return q
		}
	}
	return b.global
}

// Exceeded is the error of who passed a quota, of kind Overloaded.
type Exceeded struct {
	Text       string
	RetryAfter time.Duration // 0: nobody knows
	Limit      float64       // requests in an interval; 0 of leases
	Headers    bool          // tell of the limit in headers
}

// Error implements error.
func (e *Exceeded) Error() string { return e.Text }

// Admit judges a request of an address.
func (s *Set) Admit(p Place, from netip.Addr) error {
	q := s.of(RateLimit, p)
	if q == nil || s.exempted(p.Path) {
		return nil
	}
	key := from.Unmap().String()
	wait := q.blocked.left(key)
	if wait <= 0 {
		ok, after := q.rate.Allow(key)
		if ok {
			return nil
		}
		if wait = after; q.Block > 0 {
			wait = q.Block
			q.blocked.put(key, q.Block)
		}
	}
	q.Violations.Add(1)
	return errkind.E(errkind.Overloaded, "",
		&Exceeded{Text: fmt.Sprintf("request path %q: rate limit quota exceeded", p.Path[len(p.Space):]),
			RetryAfter: wait, Limit: q.Rate, Headers: s.Headers})
}

func (s *Set) exempted(path string) bool {
	return slices.ContainsFunc(s.exempt, func(e string) bool {
		prefix, is := strings.CutSuffix(e, "*")
		return e == path || (is && strings.HasPrefix(path, prefix))
	})
}

// Lease takes room for one more lease. Give it back with the function when it did not come to be; nil where nothing
// was taken.
func (s *Set) Lease(p Place) (giveBack func(), err error) {
	q := s.of(LeaseCount, p)
	if q == nil {
		return nil, nil
	}
	if q.Leases.Add(1) > q.MaxLeases {
		q.Leases.Add(-1)
		q.Violations.Add(1)
		return nil, errkind.E(errkind.Overloaded, "",
			&Exceeded{Text: fmt.Sprintf("request path %q: lease count quota exceeded", p.Path[len(p.Space):]),
				Headers: s.Headers})
	}
	return func() { q.Leases.Add(-1) }, nil
}

// Count takes room for a lease that is never refused. giveBack is as of Lease.
func (s *Set) Count(p Place) (giveBack func()) {
	q := s.of(LeaseCount, p)
	if q == nil {
		return nil
	}
	q.Leases.Add(1)
	return func() { q.Leases.Add(-1) }
}

// Gone gives the room of a lease back that had ended.
func (s *Set) Gone(p Place) {
	if q := s.of(LeaseCount, p); q != nil {
		for n := q.Leases.Load(); n > 0 && !q.Leases.CompareAndSwap(n, n-1); n = q.Leases.Load() {
		}
	}
}

// Holds reports whether a rule counts leases there.
func (s *Set) Holds(p Place) bool { return s.of(LeaseCount, p) != nil }

// CountsLeases reports whether leases are to be counted at all.
func (s *Set) CountsLeases() bool { return s != nil && s.byType[LeaseCount] != nil }

// blocks are addresses that are refused for a time. Bounded: past it they are forgotten, and the rate alone counts.
type blocks struct {
	once   sync.Once
	seed   maphash.Seed
	shards [16]blockShard
}

type blockShard struct {
	mu    sync.Mutex
	until map[string]time.Time
}

const blocksInShard = 4096

func (b *blocks) shard(key string) *blockShard {
	b.once.Do(func() { b.seed = maphash.MakeSeed() })
	return &b.shards[maphash.String(b.seed, key)%uint64(len(b.shards))]
}

func (b *blocks) left(key string) time.Duration {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.until[key]
	if !ok {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		delete(s.until, key)
	}
	return left
}

func (b *blocks) put(key string, d time.Duration) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil || len(s.until) >= blocksInShard {
		s.until = map[string]time.Time{}
	}
	s.until[key] = time.Now().Add(d)
}
