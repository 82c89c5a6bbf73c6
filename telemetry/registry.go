package telemetry

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is what a series is.
type Kind uint8

// The kinds of series.
const (
	KindCounter Kind = iota
	KindGauge
	KindTiming
)

// Label is one name and value of a series.
type Label struct{ Name, Value string }

// Series is one name with one set of labels. Its fields never change once made.
type Series struct {
	Kind   Kind
	Name   string // without prefix and host
	Labels []Label
	// Declared marks a placeholder made by Declare, which shows that the name exists.
	Declared bool

	order   string // sorts by name, then labels
	counter *Counter
	gauge   *Gauge
	read    atomic.Pointer[func() float64] // a GaugeFunc
	timing  *Timing
}

// family is what all series of one name share.
type family struct {
	kind  Kind
	count int
	help  string
}

// Registry holds the series of one process. A nil *Registry gives nil metrics.
type Registry struct {
	cfg    Config
	naming atomic.Pointer[Naming]
	now    atomic.Pointer[Settings]
	facts  *factRing
	window *window

	overflow, conflict *Counter

	// mu guards the maps below. It is taken when a metric is made and when the list
	// of series is rebuilt, never when one is observed. It is a leaf: nothing is
	// called out to under it.
	mu       sync.RWMutex
	series   map[string]*Series
	families map[string]*family
	slow     []*slowRing
	tenants  []*Tenants
	sorted   atomic.Pointer[[]*Series] // nil when a series was added since
}

// New makes a Registry and starts nothing. Settings that do not pass Validate are
// the caller's to refuse before; New ignores the rules it cannot read.
func New(cfg Config) *Registry {
	cfg.complete()
	r := &Registry{cfg: cfg, facts: newFactRing(cfg.FactCount),
		series: make(map[string]*Series), families: make(map[string]*family)}
	r.take(cfg.Settings)
	r.overflow = r.Counter("telemetry.series_overflow")
	r.conflict = r.Counter("telemetry.kind_conflict")
	r.window = newWindow(r)
	return r
}

// Reload takes over prefix, host and filter settings: all or, on an error, none.
func (r *Registry) Reload(s Settings) error {
	if r == nil {
		return nil
	}
	if err := s.Validate(); err != nil {
		return err
	}
	r.take(s)
	return nil
}

func (r *Registry) take(s Settings) {
	r.now.Store(&s)
	r.naming.Store(newNaming(s, r.cfg.Host))
}

// Settings are those of New or of the last Reload. Do not change what they hold.
func (r *Registry) Settings() Settings {
	if r == nil {
		return Settings{}
	}
	return *r.now.Load()
}

// Naming is how series are called outside, as of the last Reload.
func (r *Registry) Naming() *Naming { return r.naming.Load() }

// Counter returns the counter of that name and labels (k1, v1, k2, v2), making it
// if need be. Keep what it returns: finding it costs a map look-up.
func (r *Registry) Counter(name string, labels ...string) *Counter {
	if r == nil {
		return nil
	}
	return r.get(KindCounter, name, labels).counter
}

// Gauge returns the gauge of that name and labels, making it if need be.
func (r *Registry) Gauge(name string, labels ...string) *Gauge {
	if r == nil {
		return nil
	}
	return r.get(KindGauge, name, labels).gauge
}

// GaugeFunc makes a gauge whose value is asked of f when somebody reads it. f must
// not block and may be called from several goroutines. The newest f of a name and
// labels is the one that counts.
func (r *Registry) GaugeFunc(name string, f func() float64, labels ...string) {
	if r == nil || f == nil {
		return
	}
	r.get(KindGauge, name, labels).read.Store(&f)
}

// Timing returns the timing of that name and labels, making it if need be.
func (r *Registry) Timing(name string, labels ...string) *Timing {
	if r == nil {
		return nil
	}
	return r.get(KindTiming, name, labels).timing
}

// Declare makes a name exist at zero before anything is counted under it. It does
// nothing to a name that has series already, apart from giving it the help text.
func (r *Registry) Declare(kind Kind, name, help string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.families[name]; f != nil {
		f.help = help
		return
	}
	s := newSeries(kind, name, nil)
	s.Declared = true
	r.addLocked(s).help = help
}

// Help is the text that a name was declared with.
func (r *Registry) Help(name string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if f := r.families[name]; f != nil {
		return f.help
	}
	return ""
}

// Series lists all series by name, then labels. The slice is shared: do not change it.
func (r *Registry) Series() []*Series {
	if r == nil {
		return nil
	}
	if list := r.sorted.Load(); list != nil {
		return *list
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*Series, 0, len(r.series))
	for _, s := range r.series {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Series) int { return cmp.Compare(a.order, b.order) })
	r.sorted.Store(&list)
	return list
}

// Run samples the Go runtime each second and rolls the interval view every ten,
// until ctx ends. Nothing else depends on it: metrics count without it.
func (r *Registry) Run(ctx context.Context) error {
	if r == nil {
		<-ctx.Done()
		return nil
	}
	sampler, host := newRuntimeSampler(r), newHostSampler(r)
	next := r.cfg.Clock.Now().Add(Interval)
	timer := r.cfg.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		sampler.sample()
		now := r.cfg.Clock.Now()
		host.sample(now)
		if !now.Before(next) {
			r.window.roll(now)
			next = now.Add(Interval)
		}
		timer.Reset(time.Second)
	}
}

func (r *Registry) get(kind Kind, name string, labels []string) *Series {
	var room [256]byte
	key := appendKey(room[:0], name, labels)
	r.mu.RLock()
	s := r.series[string(key)]
	r.mu.RUnlock()
	if s == nil || s.Declared {
		s = r.make(kind, name, labels)
	}
	if s.Kind != kind {
		r.conflict.Add(1)
		return newSeries(kind, name, nil)
	}
	return s
}

// make is the slow half of get: it adds the series, or gives the name's overflow.
func (r *Registry) make(kind Kind, name string, labels []string) *Series {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := newSeries(kind, name, labels)
	if old := r.series[s.order]; old != nil {
		if old.Declared && old.Kind == kind {
			// The placeholder becomes the series, under a new identity: its fields never change.
			s.counter, s.gauge, s.timing = old.counter, old.gauge, old.timing
			r.series[s.order] = s
			r.sorted.Store(nil)
			return s
		}
		return old
	}
	f := r.families[name]
	if f != nil && f.kind != kind {
		return newSeries(f.kind, name, nil)
	}
	if len(labels) == 0 && len(r.series) >= 2*r.cfg.MaxSeries {
		// Names made from outside input ran away: count into a series nobody shows.
		r.overflow.Add(1)
		return s
	}
	if len(labels) > 0 && ((f != nil && f.count >= r.cfg.MaxSeriesPerName) || len(r.series) >= r.cfg.MaxSeries) {
		r.overflow.Add(1)
		s = newSeries(kind, name, overflowLabels(labels))
		if old := r.series[s.order]; old != nil {
			return old
		}
	}
	r.addLocked(s)
	return s
}

func (r *Registry) addLocked(s *Series) *family {
	f := r.families[s.Name]
	if f == nil {
		f = &family{kind: s.Kind}
		r.families[s.Name] = f
	}
	f.count++
	r.series[s.order] = s
	r.sorted.Store(nil)
	return f
}

func overflowLabels(labels []string) []string {
	out := slices.Clone(labels)
	for i := 1; i < len(out); i += 2 {
		out[i] = "overflow"
	}
	return out
}

// newSeries makes a series that is in no registry yet. A label without a value is dropped.
func newSeries(kind Kind, name string, labels []string) *Series {
	s := &Series{Kind: kind, Name: name, order: string(appendKey(nil, name, labels))}
	for i := 0; i+1 < len(labels); i += 2 {
		s.Labels = append(s.Labels, Label{labels[i], labels[i+1]})
	}
	switch kind {
	case KindCounter:
		s.counter = newCounter()
	case KindGauge:
		s.gauge = newGauge()
	case KindTiming:
		s.timing = newTiming()
	}
	return s
}

// appendKey joins name and labels with a byte that neither holds in practice; if
// one does, two series share a key, which harms a count but nothing else.
func appendKey(b []byte, name string, labels []string) []byte {
	b = append(b, name...)
	for _, l := range labels {
		b = append(b, 0)
		b = append(b, l...)
	}
	return b
}
