// Package finished writes calendar windows that are over as rows of a table, where other programs query them: one row
// for each tenant, product and window. While events may still come (the product's `late`), and after a correction, a
// row is written again where its number changed.
//
// What always holds: a row is written whole, and the same row written twice is one row, so that a pass that failed is
// done again from where the last good one began. The leader of the plane writes; while two servers take themselves for
// it, the row that knows more events stays (Table.Put). What is remembered of rows is bounded: beyond that, rows are
// written again that have not changed.
//
// Run owns the table and all that is remembered; it starts no goroutine.
package finished

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/window"
)

// Row is a window that is over.
type Row struct {
	aggregate.Series
	Window   string // hour, day or month
	From, To time.Time
	Zone     string // whose calendar it is
	Kind     string // of the product
	Unit     string
	estimate.Estimate
}

// Final says that no event can change it any more, though a correction can.
func (r *Row) Final() bool { return r.Completeness.OpenUntil == nil }

// Table is where rows go.
type Table interface {
	// Put writes rows, no two of the same window. One that is there already is replaced, unless the other is as of a
	// later time. It has a deadline of its own.
	Put(ctx context.Context, rows []Row) error
	// Newest is when a row was written last; zero where there is none.
	Newest(ctx context.Context) (time.Time, error)
	Close()
}

// Source knows the numbers: an aggregator.Aggregator.
type Source interface {
	Series(ctx context.Context) (list []aggregate.Series, silent []string)
	Estimate(ctx context.Context, q aggregator.Question) (estimate.Estimate, error)
}

// Config of a Writer.
type Config struct {
	Source Source
	View   func() *definitions.View
	Zone   func(tenant string) window.Zone // of its calendar
	// Open connects to the table. It is called again after a failure.
	Open func(ctx context.Context) (Table, error)
	// Leads says whether this server writes.
	Leads func() bool
	// Every is how often windows are looked at; zero means 10 minutes.
	Every   time.Duration
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

const (
	// passEvery is the default of Config.Every, and retryEvery how long it is at most until windows are looked at after a
	// failure or while another server leads.
	passEvery  = 10 * time.Minute
	retryEvery = time.Minute
	// firstPass is soon after the start, or Config.Every.
	firstPass = 10 * time.Second
	// overlap is how long before the newest row a new leader begins: its predecessor may have written some rows of a
	// pass and not others.
	overlap = 24 * time.Hour
	// maxBatch bounds the rows that are written at once.
	maxBatch = 500
	// maxRemembered bounds what is remembered of rows.
	maxRemembered = 200_000
)

// reach is how far back windows are written that are not there: hours are told apart for three days.
var reach = map[string]time.Duration{window.Hour: 48 * time.Hour, window.Day: 35 * 24 * time.Hour,
	window.Month: 400 * 24 * time.Hour}

// Writer writes rows. Make one with New.
type Writer struct {
	cfg     Config
	table   Table     // nil until it is open
	since   time.Time // of the last good pass; zero is not known
	passes  int
	written map[place]entry
	rows    *telemetry.Counter
	failed  *telemetry.Counter
}

// place is where a row is.
type place struct {
	aggregate.Series
	window string
	from   int64
}

// entry is what is remembered of a row.
type entry struct {
	value        usage.Quantity
	there, final bool
	pass         int // that saw it last
}

// New makes a Writer and starts nothing.
func New(cfg Config) *Writer {
	cfg.Every = cmp.Or(cfg.Every, passEvery)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Writer{cfg: cfg, written: map[place]entry{}, rows: cfg.Metrics.Counter("usage.windows.written"),
		failed: cfg.Metrics.Counter("usage.windows.failed")}
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	defer w.close()
	wait := min(firstPass, w.cfg.Every)
	for {
		t := w.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		wait = min(retryEvery, w.cfg.Every)
		if !w.cfg.Leads() {
			w.since = time.Time{}
			clear(w.written)
			w.close()
			continue
		}
		err := w.pass(ctx)
		switch {
		case err == nil:
			wait = w.cfg.Every
		case errors.Is(err, errLeads):
		case ctx.Err() == nil:
			w.failed.Add(1)
			w.cfg.Log.Warn("usage: windows that are over are written later", "error", err)
		}
	}
}

func (w *Writer) close() {
	if w.table != nil {
		w.table.Close()
		w.table = nil
	}
}

var errLeads = errors.New("another server leads")

// pass looks at all windows once.
func (w *Writer) pass(ctx context.Context) (err error) {
	if w.table == nil {
		if w.table, err = w.cfg.Open(ctx); err != nil {
			w.table = nil
			return err
		}
	}
	if w.since.IsZero() {
		newest, err := w.table.Newest(ctx)
		if err != nil {
			return err
		}
		if !newest.IsZero() {
			w.since = newest.Add(-overlap)
		}
	}
	w.passes++
	p := &pass{Writer: w, now: w.cfg.Clock.Now(), places: map[place]int{}}
	view := w.cfg.View()
	list, silent := w.cfg.Source.Series(ctx)
	if len(silent) > 0 {
		p.wrong = fmt.Errorf("no answer from %s", strings.Join(silent, ", "))
	}
	for _, s := range list {
		product, ok := view.Products.Get(s.Product)
		if !ok || product.Generation != s.Generation {
			continue
		}
		for _, name := range product.Windows {
			if window.Calendar(name) {
				err = p.windows(ctx, s, product, name)
			}
			if err != nil {
				return err
			}
		}
		if !w.cfg.Leads() {
			return errLeads
		}
	}
	if err := p.revised(ctx, view); err != nil {
		return err
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	if p.wrong != nil {
		return p.wrong
	}
	w.since = p.now
	for at, e := range w.written {
		if e.pass != w.passes { // it is too old to change by an event
			delete(w.written, at)
		}
	}
	return nil
}

// pass is one look at all windows.
type pass struct {
	*Writer
	now     time.Time
	rows    []Row
	entries []entry
	places  map[place]int // in rows
	wrong   error         // what could not be asked; the rest is written
}

// windows writes those windows of a series that are over and that are not as they were written.
func (p *pass) windows(ctx context.Context, s aggregate.Series, product *usage.Product, name string) error {
	zone := p.cfg.Zone(s.Tenant)
	begin := p.now.Add(-reach[name])
	if since := p.since.Add(-product.Late); !p.since.IsZero() && since.After(begin) {
		begin = since
	}
	first, err := zone.Of(name, begin)
	if err != nil {
		return err
	}
	open, err := zone.Of(name, p.now)
	if err != nil || !first.From.Before(open.From) {
		return err
	}
	all := window.Range{From: first.From, To: open.From}
	steps, err := zone.Steps(all, name, aggregator.MaxSteps)
	if err != nil {
		return err
	}
	e, err := p.cfg.Source.Estimate(ctx, aggregator.Question{Tenant: s.Tenant, Product: s.Product, From: all.From,
		To: all.To, Step: name, Zone: &zone})
	if err != nil {
		return p.missed(ctx, err)
	}
	values := map[int64]usage.Quantity{}
	for _, point := range e.Series {
		values[point.Time.UnixNano()] = point.Value
	}
	for _, step := range steps {
		value, there := values[step.From.UnixNano()]
		at := place{s, name, step.From.UnixNano()}
		was, known := p.written[at]
		now := entry{value, there, !p.now.Before(step.To.Add(product.Late)), p.passes}
		if known && was.value == now.value && was.there == now.there && was.final == now.final || !known && !there {
			if known {
				p.written[at] = now
			}
			continue
		}
		if err := p.row(ctx, at, product, step, zone, now); err != nil {
			return err
		}
	}
	return nil
}

// missed notes that something could not be asked, and says whether to go on.
func (p *pass) missed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errkind.Is(err, errkind.NotFound) { // it was deleted meanwhile
		p.wrong = err
	}
	return nil
}

// row writes one row, with the next ones.
func (p *pass) row(ctx context.Context, at place, product *usage.Product, r window.Range, zone window.Zone, e entry,
) error {
	answer, err := p.cfg.Source.Estimate(ctx, aggregator.Question{Tenant: at.Tenant, Product: at.Product, From: r.From,
		To: r.To, Zone: &zone})
	if err != nil {
		return p.missed(ctx, err)
	}
	row := Row{Series: at.Series, Window: at.window, From: r.From.UTC(), To: r.To.UTC(), Zone: zone.Location().String(),
		Kind: product.Kind.String(), Unit: product.Unit, Estimate: answer}
	if e.final = row.Final(); answer.Completeness.ShardsWarm < answer.Completeness.Shards {
		e.pass = 0 // it is written again
	}
	if i, is := p.places[at]; is {
		p.rows[i], p.entries[i] = row, e
		return nil
	}
	p.places[at] = len(p.rows)
	p.rows, p.entries = append(p.rows, row), append(p.entries, e)
	if len(p.rows) < maxBatch {
		return nil
	}
	return p.flush(ctx)
}

// flush writes what has gathered.
func (p *pass) flush(ctx context.Context) error {
	if len(p.rows) == 0 {
		return nil
	}
	if err := p.table.Put(ctx, p.rows); err != nil {
		return err
	}
	p.Writer.rows.Add(uint64(len(p.rows)))
	for at, i := range p.places {
		if p.entries[i].pass > 0 && len(p.written) < maxRemembered {
			p.written[at] = p.entries[i]
		}
	}
	p.rows, p.entries = nil, nil
	clear(p.places)
	return nil
}

// again is how long before the last pass a correction may have been told: of two servers' clocks one is behind.
const again = time.Hour

// revised writes the windows that corrections have changed since the last pass.
func (p *pass) revised(ctx context.Context, view *definitions.View) error {
	for i := range view.Periods {
		period := &view.Periods[i]
		product, ok := view.Products.Get(period.Series.Product)
		n := len(period.Revisions)
		if n == 0 || !ok || product.Generation != period.Series.Generation ||
			period.Revisions[n-1].At.Before(p.since.Add(-again)) {
			continue
		}
		zone := p.cfg.Zone(period.Series.Tenant)
		for _, name := range product.Windows {
			r, err := zone.Of(name, period.From)
			if err != nil || !window.Calendar(name) || !r.From.Equal(period.From) || !r.To.Equal(period.To) {
				continue
			}
			at := place{period.Series, name, r.From.UnixNano()}
			now := entry{period.Value(), true, true, p.passes}
			if was, known := p.written[at]; known && was.value == now.value && was.final {
				continue
			}
			if err := p.row(ctx, at, product, r, zone, now); err != nil {
				return err
			}
		}
	}
	return nil
}
