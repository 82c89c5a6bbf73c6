// Package asset fetches, verifies and unpacks what checks, handlers, mutators and filters need to run: archives of
// programs and scripts. Agents and servers use it alike.
//
// Invariants: an archive is unpacked once for each checksum, below Config.Dir in a folder named by it, and only after
// the checksum of the whole was compared; the folder appears in one step when all of it is on the disk, so one that
// is there is complete, also after a crash. Nothing of an archive is written outside of its folder. Sizes, the number
// of files, the time, and the rate of downloads are bounded.
//
// All methods may be called from any goroutine. Two calls for one checksum share the work; each waits for no
// longer than its own context allows. Nothing runs after the last call returned.
package asset

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/script"
)

// The contract's rate of downloads (assets-rate-limit, assets-burst-limit).
const (
	DefaultPerSecond = 1.39
	DefaultBurst     = 100
)

// Config of a Fetcher.
type Config struct {
	// Dir is where archives are unpacked; it is made when it is missing.
	Dir     string
	Log     *slog.Logger
	Scripts *script.Engine // for filters
	// Client downloads; nil is one that takes the proxy of the environment and trusts the machine's authorities.
	Client *http.Client
	// PerSecond and Burst limit downloads, 0 for the contract's.
	PerSecond float64
	Burst     int
	// Timeout bounds one download, 0 for 5 minutes.
	Timeout time.Duration
	// MaxArchiveBytes bounds what is downloaded (0 for 512 MiB), MaxUnpackedBytes what comes out of it (0 for 2 GiB),
	// MaxFiles how many files (0 for 200,000).
	MaxArchiveBytes, MaxUnpackedBytes int64
	MaxFiles                          int
}

func (c *Config) complete() error {
	if c.Dir == "" {
		return errkind.Errorf(errkind.Invalid, "assets: a folder for them is missing")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Scripts == nil {
		c.Scripts = script.New(script.Config{})
	}
	if c.Client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.ResponseHeaderTimeout = 30 * time.Second
		transport.DisableKeepAlives = true // downloads are rare, and of many hosts
		c.Client = &http.Client{Transport: transport}
	}
	if c.MaxArchiveBytes <= 0 {
		c.MaxArchiveBytes = 512 << 20
	}
	if c.MaxUnpackedBytes <= 0 {
		c.MaxUnpackedBytes = 2 << 30
	}
	if c.MaxFiles <= 0 {
		c.MaxFiles = 200_000
	}
	if c.PerSecond <= 0 {
		c.PerSecond = DefaultPerSecond
	}
	if c.Burst <= 0 {
		c.Burst = DefaultBurst
	}
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Minute
	}
	return nil
}

// Fetcher fetches assets.
type Fetcher struct {
	cfg  Config
	rate *rate.Limiter

	mu   sync.Mutex
	busy map[string]*turn // by checksum

	filtersMu sync.Mutex
	filters   map[string]*script.Program // compiled filters by source
}

// turn is held by whoever works on a checksum.
type turn struct {
	token chan struct{}
	users int
}

// unfinished begins the names of folders and files that are being written.
const unfinished = "unfinished-"

// New makes a Fetcher, and removes what a crash left unfinished. One process at a time may use a folder.
func New(cfg Config) (*Fetcher, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			if err := os.RemoveAll(filepath.Join(cfg.Dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return &Fetcher{
		cfg: cfg, rate: rate.NewLimiter(rate.Limit(cfg.PerSecond), cfg.Burst),
		busy: map[string]*turn{}, filters: map[string]*script.Program{},
	}, nil
}

// Unpacked is an asset that is ready.
type Unpacked struct {
	Name   string
	SHA512 string
	Dir    string // absolute
}

// Fetch returns an asset as it is for an entity, unpacking it when that was not done before; nil when none of its
// builds is for that entity. Errors: Invalid, the definition or the archive is wrong; Unavailable, it cannot be
// downloaded or written now; TooLarge.
func (f *Fetcher) Fetch(ctx context.Context, a *monitor.Asset, e *monitor.Entity) (*Unpacked, error) {
	b, err := f.choose(ctx, a, e)
	if b == nil || err != nil {
		return nil, err
	}
	sum := strings.ToLower(b.SHA512)
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 64 {
		return nil, errkind.Errorf(errkind.Invalid, "asset %q: sha512 is not 128 hexadecimal digits", a.Name)
	}
	dir, err := filepath.Abs(filepath.Join(f.cfg.Dir, sum))
	if err != nil {
		return nil, err
	}
	out := &Unpacked{Name: a.Name, SHA512: sum, Dir: dir}
	if there(dir) {
		return out, nil
	}
	done, err := f.turn(ctx, sum)
	if err != nil {
		return nil, err
	}
	defer done()
	if there(dir) {
		return out, nil
	}
	if err := f.install(ctx, b, dir); err != nil {
		return nil, errkind.E(errkind.Of(err), "asset "+a.Name, err)
	}
	f.cfg.Log.Info("an asset was unpacked", "asset", a.Name, "url", b.URL, "dir", dir)
	return out, nil
}

// FetchAll fetches assets in order, leaving out those that have no build for the entity.
func (f *Fetcher) FetchAll(ctx context.Context, list []*monitor.Asset, e *monitor.Entity) ([]*Unpacked, error) {
	var out []*Unpacked
	for _, a := range list {
		u, err := f.Fetch(ctx, a, e)
		if err != nil {
			return nil, err
		}
		if u != nil {
			out = append(out, u)
		}
	}
	return out, nil
}

func there(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// turn waits until nobody else works on a checksum.
func (f *Fetcher) turn(ctx context.Context, sum string) (done func(), err error) {
	f.mu.Lock()
	t := f.busy[sum]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		f.busy[sum] = t
	}
	t.users++
	f.mu.Unlock()
	leave := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(f.busy, sum)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, errkind.E(errkind.Unavailable, "an asset that is being fetched", ctx.Err())
	}
}

// choose returns the first build whose filters hold for the entity; an asset without builds is its own build.
func (f *Fetcher) choose(ctx context.Context, a *monitor.Asset, e *monitor.Entity) (*monitor.AssetBuild, error) {
	builds := a.Builds
	if len(builds) == 0 {
		builds = []*monitor.AssetBuild{{URL: a.URL, SHA512: a.SHA512, Filters: a.Filters, Headers: a.Headers}}
	}
	var vars []script.Var
	for _, b := range builds {
		holds := true
		for _, source := range b.Filters {
			if vars == nil {
				text, err := json.Marshal(e)
				if err != nil {
					return nil, errkind.E(errkind.Internal, "an entity", err)
				}
				vars = []script.Var{{Name: "entity", JSON: text}}
			}
			if holds = f.holds(ctx, a, source, vars); !holds {
				break
			}
		}
		if ctx.Err() != nil {
			return nil, errkind.E(errkind.Unavailable, "asset "+a.Name, ctx.Err())
		}
		if !holds {
			continue
		}
		if len(a.Builds) == 0 || len(a.Headers) == 0 {
			return b, nil
		}
		with := *b
		with.Headers = joined(a.Headers, b.Headers)
		return &with, nil
	}
	return nil, nil
}

// joined is both, the second one's where both have a key.
func joined(a, b map[string]string) map[string]string {
	out := make(map[string]string, len(a)+len(b))
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// maxFilters bounds the compiled filters that are kept.
const maxFilters = 4096

// holds evaluates a filter. One that cannot be evaluated does not hold.
func (f *Fetcher) holds(ctx context.Context, a *monitor.Asset, source string, vars []script.Var) bool {
	f.filtersMu.Lock()
	p := f.filters[source]
	f.filtersMu.Unlock()
	if p == nil {
		var err error
		if p, err = script.NewProgram(source); err != nil {
			f.cfg.Log.Warn("an asset's filter is wrong", "asset", a.Name, "filter", source, "error", err)
			return false
		}
		f.filtersMu.Lock()
		if len(f.filters) >= maxFilters {
			clear(f.filters)
		}
		f.filters[source] = p
		f.filtersMu.Unlock()
	}
	r, err := f.cfg.Scripts.Do(ctx, script.Task{Program: p, Vars: vars})
	if err != nil {
		f.cfg.Log.Warn("an asset's filter failed", "asset", a.Name, "filter", source, "error", err)
		return false
	}
	return r.Truth
}
