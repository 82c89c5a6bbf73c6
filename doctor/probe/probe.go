package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/usual"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
)

// MaxSeries bounds the series that are followed.
const MaxSeries = 1500

const (
	// warmUp is how long after its start a process is not typical.
	warmUp = time.Minute
	// saveEvery is how often what is usual is written.
	saveEvery = 5 * time.Minute
	// factsFor is how long facts stay in the evidence.
	factsFor = 15 * time.Minute
	// maxUsualBytes bounds the file of what is usual.
	maxUsualBytes = 1 << 20
)

// Config of a Probe. Member, Role and Metrics are needed.
type Config struct {
	Member  string
	Role    doctor.Role
	Version string
	// Addresses and Depends are asked for each evidence; nil is none.
	Addresses func() []string
	Depends   func() []doctor.Dependency
	// Metrics is the registry into which the host's series go; it is followed too.
	Metrics *telemetry.Registry
	// Others are followed beside it: planes that count in registries of their own.
	Others []*telemetry.Registry
	// Fresh is called before each tick reads, for owners that count only when they are asked; nil is nobody. It must not
	// block.
	Fresh func()
	// Slow gives the slowest requests of late; nil is none.
	Slow func() []doctor.Slow
	// Stacks gives what profiles say; nil is none.
	Stacks func() []doctor.Stack
	// Look is called after each tick at which something was found: a closer look is worth its cost; nil looks at
	// nothing. It must not block.
	Look func()
	// Host is read for series of the machine; nil reads none.
	Host *Host
	// Tell is given the evidence after each tick at which it led to findings, and after some more: whoever was told of a
	// finding learns soon that it is no more. nil tells nobody. It must not block.
	Tell func(doctor.Evidence)
	// Dir is where what is usual is kept, and the disk whose floor is measured; "" keeps it in memory.
	Dir   string
	FS    vfs.FS
	Clock clock.Clock
	Log   *slog.Logger
}

// Probe gathers. Evidence may be called from any goroutine.
type Probe struct {
	cfg   Config
	began time.Time

	mu      sync.Mutex // guards the rest; held for a pass over the tracks, by Run and Evidence alone
	tracks  map[*telemetry.Series]*track
	cursors []*telemetry.Cursor
	wanted  map[string]bool
	known   map[string]usual.Level
	floors  *doctor.Floors
	facts   []doctor.Fact
	dropped int // series beyond MaxSeries
	last    time.Time
	gaps    []string
	past    past
	tenants [2][]telemetry.Tenant // of the last two ticks, the newest last
	tells   int                   // evidence that is to be told still; Run's alone
}

// New makes a Probe and reads what is usual from Dir.
func New(cfg Config) (*Probe, error) {
	if cfg.Metrics == nil || cfg.Member == "" {
		return nil, errors.New("probe: Member and Metrics are needed")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.FS == nil {
		cfg.FS = vfs.OS{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Probe{cfg: cfg, began: cfg.Clock.Now(), tracks: map[*telemetry.Series]*track{}, wanted: map[string]bool{},
		known: map[string]usual.Level{}}
	for _, name := range doctor.Signals {
		p.wanted[name] = true
	}
	for _, r := range append([]*telemetry.Registry{cfg.Metrics}, cfg.Others...) {
		if r != nil {
			p.cursors = append(p.cursors, r.NewCursor())
		}
	}
	return p, p.load()
}

// Run gathers until ctx ends, then keeps what is usual.
func (p *Probe) Run(ctx context.Context) error {
	facts := p.cfg.Metrics.Facts()
	// The disk has a goroutine of its own: when it hangs, evidence of that is still gathered.
	turns := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() { p.keep(turns) })
	defer wg.Wait()
	defer close(turns)
	saved := p.cfg.Clock.Now()
	for {
		timer := p.cfg.Clock.NewTimer(tick)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if p.cfg.Host != nil {
			p.setGaps(p.cfg.Host.Sample(p.cfg.Metrics, p.cfg.Clock.Now()))
		}
		p.pass()
		p.takeFacts(facts)
		p.judge()
		if now := p.cfg.Clock.Now(); now.Sub(saved) >= saveEvery {
			saved = now
			select {
			case turns <- struct{}{}:
			default: // the last one is not written yet
			}
		}
	}
}

// keep does what touches the disk: the floor once, what is usual at each turn and at the end.
func (p *Probe) keep(turns <-chan struct{}) {
	p.measureFloors()
	for more := true; more; {
		_, more = <-turns
		if err := p.save(); err != nil {
			p.cfg.Log.Warn("doctor: cannot store the learned baselines", "error", err)
		}
	}
}

func (p *Probe) setGaps(gaps []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gaps = gaps
}

// pass reads all series once.
func (p *Probe) pass() {
	if p.cfg.Fresh != nil {
		p.cfg.Fresh() // without the lock: whoever asks for evidence does not wait for a plane that counts long
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Clock.Now()
	took := tick
	if !p.last.IsZero() && now.After(p.last) {
		took = now.Sub(p.last)
	}
	p.last = now
	for _, t := range p.tracks {
		t.shift()
	}
	p.dropped = 0
	for i, c := range p.cursors {
		// Each registry tells about the runtime; one is enough.
		c.EachOf(func(s *telemetry.Series) bool {
			return p.wanted[s.Name] && (i == 0 || !strings.HasPrefix(s.Name, "runtime."))
		}, func(r *telemetry.Reading) {
			t := p.tracks[r.Series]
			if t == nil {
				if len(p.tracks) >= MaxSeries {
					p.dropped++
					return
				}
				t = newTrack(r.Series, p.known)
				p.tracks[r.Series] = t
			}
			t.take(r)
		})
	}
	p.tenants[0], p.tenants[1] = p.tenants[1], nil
	for _, r := range append([]*telemetry.Registry{p.cfg.Metrics}, p.cfg.Others...) {
		p.tenants[1] = append(p.tenants[1], r.Busiest()...)
	}
	warm := now.Sub(p.began) >= warmUp
	for _, t := range p.tracks {
		if !warm {
			t.toLearn = 0 // this window is not learned from
		}
		t.roll(now, took)
	}
}

func (p *Probe) takeFacts(r *telemetry.FactReader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		rec, ok := r.TryNext()
		if !ok {
			break
		}
		p.facts = append(p.facts, doctor.Fact{Name: rec.Fact.FactName(), At: rec.At, Fields: fieldsOf(rec.Fact)})
	}
	old := p.cfg.Clock.Now().Add(-factsFor)
	p.facts = slices.DeleteFunc(p.facts, func(f doctor.Fact) bool { return f.At.Before(old) })
	if over := len(p.facts) - 200; over > 0 {
		p.facts = slices.Delete(p.facts, 0, over)
	}
}

// fieldsOf is a fact's exported fields as text: facts are plain structs.
func fieldsOf(f telemetry.Fact) map[string]string {
	b, err := json.Marshal(f)
	if err != nil {
		return nil
	}
	var raw map[string]any
	if json.Unmarshal(b, &raw) != nil {
		return nil
	}
	out := make(map[string]string, len(raw))
	for k, v := range raw {
		out[strings.ToLower(k)] = fmt.Sprint(v)
	}
	return out
}

// Evidence is what is known now.
func (p *Probe) Evidence() doctor.Evidence {
	e := doctor.Evidence{Identity: doctor.Identity{Member: p.cfg.Member, Role: p.cfg.Role, Version: p.cfg.Version},
		At:    p.cfg.Clock.Now(),
		Began: p.began, Window: window}
	if p.cfg.Addresses != nil {
		e.Addresses = p.cfg.Addresses()
	}
	if p.cfg.Depends != nil {
		e.Depends = p.cfg.Depends()
	}
	if p.cfg.Slow != nil {
		e.Slow = p.cfg.Slow()
	}
	if p.cfg.Stacks != nil {
		e.Stacks = p.cfg.Stacks()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Floors, e.Facts, e.Gaps, e.Past = p.floors, slices.Clone(p.facts), slices.Clone(p.gaps), p.past.list()
	for _, t := range p.tracks {
		e.Series = append(e.Series, t.evidence())
	}
	e.Series = append(e.Series, p.busiest()...)
	slices.SortFunc(e.Series, func(a, b doctor.Series) int { return strings.Compare(a.Key(), b.Key()) })
	if p.dropped > 0 {
		e.Gaps = append(e.Gaps, fmt.Sprintf("%d series beyond %d are not followed", p.dropped, MaxSeries))
	}
	if p.last.IsZero() {
		e.Gaps = append(e.Gaps, doctor.NoWindow)
	}
	return e
}

// busiest are the askers of the last window as series; it needs mu.
func (p *Probe) busiest() []doctor.Series {
	sums := map[telemetry.Tenant]float64{}
	for _, tick := range p.tenants {
		for _, t := range tick {
			sums[telemetry.Tenant{Plane: t.Plane, Who: t.Who}] += float64(t.Requests)
		}
	}
	out := make([]doctor.Series, 0, len(sums))
	for t, n := range sums {
		out = append(out, doctor.Series{Name: "tenant.requests", Kind: doctor.Counter,
			Labels: []doctor.Label{{Name: "plane", Value: t.Plane}, {Name: "tenant", Value: t.Who}},
			Now:    doctor.Stat{Sum: n, Rate: n / window.Seconds()}})
	}
	return out
}

func (p *Probe) file() string { return filepath.Join(p.cfg.Dir, "doctor", "usual.json") }

// load reads what is usual. A file that cannot be read is set aside: it only makes the doctor learn again.
func (p *Probe) load() error {
	if p.cfg.Dir == "" {
		return nil
	}
	if err := p.cfg.FS.MkdirAll(filepath.Dir(p.file()), 0o700); err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	b, err := vfs.ReadFile(p.cfg.FS, p.file())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && len(b) <= maxUsualBytes:
		err = json.Unmarshal(b, &p.known)
	case err == nil:
		err = errors.New("it is too large")
	}
	if err != nil {
		p.cfg.Log.Warn("doctor: learning the baselines again", "file", p.file(), "error", err)
		p.known = map[string]usual.Level{}
	}
	return nil
}

// save writes what is usual.
func (p *Probe) save() error {
	if p.cfg.Dir == "" {
		return nil
	}
	p.mu.Lock()
	for _, t := range p.tracks {
		if t.usual.Known() {
			p.known[t.key] = t.usual
		}
	}
	b, err := json.Marshal(p.known)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if len(b) > maxUsualBytes {
		return fmt.Errorf("what is usual takes %d bytes, more than %d", len(b), maxUsualBytes)
	}
	return vfs.WriteFileAtomic(p.cfg.FS, p.file(), b, 0o600)
}

// measureFloors finds out what the disk can do when little else is asked of it: at the start, for a tenth of a second
// at most.
func (p *Probe) measureFloors() {
	if p.cfg.Dir == "" {
		return
	}
	name := filepath.Join(p.cfg.Dir, "doctor", "floor")
	f, err := p.cfg.FS.Create(name)
	if err != nil {
		return
	}
	defer func() { _ = f.Close(); _ = p.cfg.FS.Remove(name) }()
	page := make([]byte, 4096)
	best := time.Duration(0)
	began := p.cfg.Clock.Now()
	for range 16 {
		at := p.cfg.Clock.Now()
		if _, err := f.Write(page); err != nil || f.Sync() != nil {
			return
		}
		if took := p.cfg.Clock.Since(at); best == 0 || took < best {
			best = took
		}
		if p.cfg.Clock.Since(began) > 100*time.Millisecond {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.floors = &doctor.Floors{FsyncMillis: float64(best) / float64(time.Millisecond),
		MeasuredSeconds: p.cfg.Clock.Since(began).Seconds()}
}
