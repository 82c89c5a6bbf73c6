package usageload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/spawn"
)

// Identities is what counting many different ones came to.
type Identities struct {
	Errors []Measured `json:"errors"`
	// Live are the identities of all tenants and products together, RSSBytes what the server takes with them.
	Live      int64   `json:"live"`
	Tenants   int     `json:"tenants"`
	Products  int     `json:"products"`
	PerSecond float64 `json:"events_per_second"`
	RSSBytes  int64   `json:"rss_bytes"`
	// WarmSeconds is from the start of a killed server until its answers are complete again; ReadySeconds until it takes
	// events, about.
	WarmSeconds  float64 `json:"warm_seconds"`
	ReadySeconds float64 `json:"ready_seconds"`
}

// Measured is an estimate beside the truth.
type Measured struct {
	Identities int64   `json:"identities"`
	Estimate   int64   `json:"estimate"`
	Relative   float64 `json:"relative_error"`
	Stated     float64 `json:"stated_standard_error"`
	Within     bool    `json:"within_bound"`
	Method     string  `json:"method"`
}

// Of the acceptance: 10,000 tenants with 20 products each.
const (
	spreadTenants  = 10_000
	spreadProducts = 20
	// spreadMost are the identities of all of them together, whose memory and start are measured.
	spreadMost = 10_000_000
)

// sizes are those whose error is measured, as far as Options.Identities goes.
var sizes = []int64{1_000, 100_000, 10_000_000, 100_000_000}

// place is where an identity belongs.
type place func(n int64) (tenant, product string)

// identities measures errors, memory and the start.
func (x *run) identities(ctx context.Context, c *bench.Target) (*Identities, error) {
	out := &Identities{Tenants: spreadTenants, Products: spreadProducts}
	for p := range spreadProducts {
		if err := x.defineUnique(ctx, spreadProduct(int64(p))); err != nil {
			return nil, err
		}
	}
	for _, size := range sizes {
		if size > x.o.Identities {
			continue
		}
		x.o.Say("the error of %d identities ...", size)
		tenant := "bench-of-" + strconv.FormatInt(size, 10)
		one := func(int64) (string, string) { return tenant, spreadProduct(0) }
		if _, err := x.sendIdentities(ctx, size, one); err != nil {
			return nil, err
		}
		m, err := x.measured(ctx, tenant, spreadProduct(0), size)
		if err != nil {
			return nil, err
		}
		out.Errors = append(out.Errors, m)
	}
	live := min(x.o.Identities, spreadMost)
	x.o.Say("%d identities of %d tenants with %d products each ...", live, spreadTenants, spreadProducts)
	took, err := x.sendIdentities(ctx, live, func(n int64) (string, string) {
		return tenantOf(int(n % spreadTenants)), spreadProduct(n / spreadTenants % spreadProducts)
	})
	if err != nil {
		return nil, err
	}
	out.Live, out.PerSecond = live, float64(live)/took.Seconds()
	if c.Cluster == nil {
		return out, errors.New("memory and the start: with --target, the server is not the bench's own")
	}
	s := c.Servers[0]
	out.RSSBytes = s.RSS()
	return out, x.warm(ctx, c, out)
}

func spreadProduct(n int64) string { return "bench_unique_" + strconv.FormatInt(n, 10) }

func (x *run) defineUnique(ctx context.Context, name string) error {
	status, body, err := x.ask(ctx, "PUT", "/v1/usage/products/"+name,
		strings.NewReader(`{"kind":"unique","identity":["id"],"windows":["1h","month"]}`), nil)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%d %s", status, body)
	}
	return err
}

// sendIdentities sends so many different ones, each once.
func (x *run) sendIdentities(ctx context.Context, total int64, where place) (time.Duration, error) {
	var next atomic.Int64
	failed := make([]error, x.o.Connections)
	epoch := uint64(time.Now().UnixNano())
	began := time.Now()
	var wg sync.WaitGroup
	for w := range x.o.Connections {
		wg.Go(func() {
			each := int64(x.o.Events)
			for sequence := uint64(1); ; sequence++ {
				from := (next.Add(1) - 1) * each
				if from >= total || ctx.Err() != nil {
					return
				}
				body := identityBatch("bench-ids-"+strconv.Itoa(w), epoch, sequence, from, min(from+each, total), where)
				if failed[w] = x.sendOne(ctx, body); failed[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began), errors.Join(append(failed, ctx.Err())...)
}

// sendOne sends a batch until it is accepted.
func (x *run) sendOne(ctx context.Context, body []byte) error {
	for {
		status, text, err := x.ask(ctx, "POST", "/v1/usage/batch", bytes.NewReader(body), nil)
		switch {
		case err != nil:
			return err
		case status == http.StatusAccepted:
			return nil
		case status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable:
			return fmt.Errorf("%d %.200s", status, text)
		}
		if err := spawn.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// identityBatch is the identities [from, to) as docs/internals/usage.md has them.
func identityBatch(producer string, epoch, sequence uint64, from, to int64, where place) []byte {
	numbers := map[string]uint64{"bench": 0, "id": 1}
	texts := []string{"bench", "id"}
	number := func(s string) uint64 {
		n, known := numbers[s]
		if !known {
			n = uint64(len(texts))
			numbers[s], texts = n, append(texts, s)
		}
		return n
	}
	var events []byte
	now := time.Now().UnixNano()
	for n := from; n < to; n++ {
		tenant, product := where(n)
		b, mark := pack.Begin(events)
		b = pack.Uint(pack.Uint(pack.Uint(pack.Uint(b, 0), number(tenant)), number(product)), 0)
		at := int64(0) // after the event before
		if n == from {
			at = now
		}
		b = pack.Int(pack.Int(b, at), 0)
		b = pack.String(pack.Uint(pack.Uint(b, 1), 1), "host-"+strconv.FormatInt(n, 36))
		events = pack.End(pack.Uint(b, 0), mark)
	}
	b, mark := pack.Begin(make([]byte, 0, len(events)+64*len(texts)))
	b = pack.String(pack.Uint(b, 1), producer)
	b = pack.Strings(pack.Uint(pack.Uint(b, epoch), sequence), texts)
	return pack.End(append(pack.Uint(b, uint64(to-from)), events...), mark)
}

// estimated is what of an estimate is read here.
type estimated struct {
	Value json.Number
	Error struct {
		Relative float64
		Low      json.Number
		High     *json.Number
		Method   string
	}
	Completeness struct{ Ratio float64 }
}

func (x *run) estimate(ctx context.Context, tenant, product string) (e estimated, err error) {
	status, body, err := x.ask(ctx, "GET", "/v1/usage/estimates?window=month&tenant="+tenant+"&product="+product, nil, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %.200s", status, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	return e, err
}

func (x *run) measured(ctx context.Context, tenant, product string, truth int64) (m Measured, err error) {
	e, err := x.estimate(ctx, tenant, product)
	if err != nil {
		return m, err
	}
	value, err1 := e.Value.Int64()
	low, err2 := e.Error.Low.Int64()
	high, err3 := int64(math.MaxInt64), error(nil)
	if e.Error.High != nil {
		high, err3 = e.Error.High.Int64()
	}
	m = Measured{Identities: truth, Estimate: value, Relative: math.Abs(float64(value)/float64(truth) - 1),
		Stated: e.Error.Relative, Within: low <= truth && truth <= high, Method: e.Error.Method}
	return m, errors.Join(err1, err2, err3)
}

// warm kills the server, starts it again, and times it until its answers are complete and as they were.
func (x *run) warm(ctx context.Context, c *bench.Target, out *Identities) error {
	tenant, product := tenantOf(0), spreadProduct(0)
	before, err := x.estimate(ctx, tenant, product)
	if err != nil {
		return err
	}
	x.o.Say("kill -9 and start ...")
	if err := spawn.Sleep(ctx, 2*snapshotEvery); err != nil { // a snapshot has what was counted, as in a busy day
		return err
	}
	s := c.Servers[0]
	s.Kill()
	began := time.Now()
	if err := s.Start(); err != nil {
		return err
	}
	return spawn.Until(ctx, 2*time.Minute, "complete answers", func() error {
		e, err := x.estimate(ctx, tenant, product)
		switch {
		case err != nil:
			return err
		case out.ReadySeconds == 0:
			out.ReadySeconds = time.Since(began).Seconds()
		}
		if e.Completeness.Ratio < 1 || e.Value != before.Value {
			return fmt.Errorf("%s of %s, completeness %g", e.Value, before.Value, e.Completeness.Ratio)
		}
		out.WarmSeconds = time.Since(began).Seconds()
		return nil
	})
}

// text is the report's part in words.
func (i *Identities) text() string {
	var b strings.Builder
	for _, m := range i.Errors {
		fmt.Fprintf(&b, "uniques of %d: %d, off by %.3f %% (%s, stated %.3f %%), within the bound: %t\n", m.Identities,
			m.Estimate, 100*m.Relative, m.Method, 100*m.Stated, m.Within)
	}
	fmt.Fprintf(&b, "%d identities of %d tenants x %d products: %.0f events/s, %.0f MiB; after kill -9 complete in "+
		"%.1f s (answers from %.1f s on)\n", i.Live, i.Tenants, i.Products, i.PerSecond, float64(i.RSSBytes)/(1<<20),
		i.WarmSeconds, i.ReadySeconds)
	return b.String()
}
