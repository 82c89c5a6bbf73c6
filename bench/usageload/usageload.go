// Package usageload measures the doors of the usage plane: events that are stored with fsync and counted, a second, in
// binary batches (of sums and, as joint, of uniques that are told by three fields at once), as JSON and as dogstatsd.
// The generator is included. An HTTP door counts what was accepted in the answers; dogstatsd has none, so what the
// plane counted is asked for at the end.
package usageload

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
)

// Options of a run.
type Options struct {
	bench.Options
	// Events is how many events a batch has; zero means 5,000. Tenants is how many tenants there are; zero means 100.
	Events, Tenants int
	// Identities is how many different ones are counted for errors, memory and the start; zero measures the doors alone.
	Identities int64
}

// snapshotEvery is how often a server that counts identities saves its state.
const snapshotEvery = 5 * time.Second

// Door is what one door did.
type Door struct {
	Door      string  `json:"door"`
	PerSecond float64 `json:"events_per_second"`
	Events    int64   `json:"events"`
	Seconds   float64 `json:"seconds"`
	Sent      int64   `json:"sent"`              // dogstatsd: what was sent, of which Events were counted
	Pushed    int64   `json:"refused,omitempty"` // batches that were asked to come again
}

// Report is what was measured.
type Report struct {
	Bench       string        `json:"bench"`
	Connections int           `json:"connections"`
	Batch       int           `json:"batch"`
	Doors       []Door        `json:"doors"`
	Identities  *Identities   `json:"identities,omitempty"`
	Floors      *bench.Floors `json:"floors,omitempty"`
	Missing     []string      `json:"missing,omitempty"`
}

const product = "bench_calls"

// run is one run.
type run struct {
	o    *Options
	base string
	http *http.Client
	udp  string
}

// Run measures.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	o.Connections, o.Events = cmp.Or(o.Connections, 4), cmp.Or(o.Events, 5000)
	o.Tenants, o.Duration = cmp.Or(o.Tenants, 100), cmp.Or(o.Duration, 10*time.Second)
	ports, err := testport.Free(1)
	if err != nil {
		return nil, err
	}
	o.HCL = append(o.HCL, fmt.Sprintf("usage { enabled = true, dogstatsd { port = %d } }", ports[0]))
	if o.Identities > 0 {
		o.HCL = append(o.HCL, fmt.Sprintf("usage { state { snapshot = %q } }", snapshotEvery))
	}
	c, err := bench.OpenTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	x := &run{o: &o, base: "http://" + c.HTTP, udp: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])),
		http: &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: o.Connections}}}
	defer x.http.CloseIdleConnections()
	if err := x.define(ctx, product, `{"kind":"sum"}`); err != nil {
		return nil, err
	}
	r := &Report{Bench: "usage", Connections: o.Connections, Batch: o.Events}
	for _, door := range []struct {
		name string
		run  func(context.Context) (Door, error)
	}{{"binary", x.binary}, {"joint", x.joint}, {"json", x.json}, {"dogstatsd", x.dogstatsd}} {
		if door.name == "dogstatsd" && o.Target != "" {
			r.Missing = append(r.Missing, "dogstatsd: with --target, nobody knows where that port is")
			continue
		}
		o.Say("%s ...", door.name)
		d, err := door.run(ctx)
		if err != nil && door.name == "dogstatsd" {
			r.Missing = append(r.Missing, "dogstatsd: "+err.Error()) // the other doors' figures stand
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", door.name, err)
		}
		d.Door = door.name
		r.Doors = append(r.Doors, d)
	}
	if o.Identities > 0 {
		if r.Identities, err = x.identities(ctx, c); err != nil {
			return nil, fmt.Errorf("identities: %w", err)
		}
	}
	if !o.SkipFloors {
		if r.Floors, err = bench.MeasureFloors(ctx, &o.Options); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// define makes a product, once the plane takes definitions.
func (x *run) define(ctx context.Context, name, definition string) error {
	return spawn.Until(ctx, time.Minute, "the usage plane", func() error {
		status, body, err := x.ask(ctx, "PUT", "/v1/usage/products/"+name, strings.NewReader(definition), nil)
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
}

func (x *run) ask(ctx context.Context, method, path string, body io.Reader, headers map[string]string) (int, []byte,
	error) {
	r, err := http.NewRequestWithContext(ctx, method, x.base+path, body)
	if err != nil {
		return 0, nil, err
	}
	if x.o.Token != "" {
		r.Header.Set("X-Consul-Token", x.o.Token)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := x.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, text, err
}

// sender makes the request of a worker with a sequence.
type sender func(ctx context.Context, worker int, sequence uint64) (int, []byte, error)

// load has all connections send one batch after the other for the time of the run.
func (x *run) load(ctx context.Context, send sender) (Door, error) {
	within, cancel := context.WithTimeout(ctx, x.o.Duration)
	defer cancel()
	var accepted, refused atomic.Int64
	failed := make([]error, x.o.Connections)
	var wg sync.WaitGroup
	began := time.Now()
	for w := range x.o.Connections {
		wg.Go(func() {
			for sequence := uint64(1); within.Err() == nil; {
				status, body, err := send(ctx, w, sequence) // a batch under way at the end counts, and its time too
				switch {
				case err != nil:
					failed[w] = err
					return
				case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
					refused.Add(1)
					continue
				}
				var answer struct{ Accepted int64 }
				if err := json.Unmarshal(body, &answer); err != nil || status != http.StatusAccepted {
					failed[w] = fmt.Errorf("%d %.200s", status, body)
					return
				}
				accepted.Add(answer.Accepted)
				sequence++
			}
		})
	}
	wg.Wait()
	d := Door{Events: accepted.Load(), Seconds: time.Since(began).Seconds(), Pushed: refused.Load()}
	d.Sent, d.PerSecond = d.Events, float64(d.Events)/d.Seconds
	for _, err := range failed {
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// binary sends batches of docs/internals/usage.md.
func (x *run) binary(ctx context.Context) (Door, error) {
	texts := []string{product, "bench"}
	for t := range x.o.Tenants {
		texts = append(texts, tenantOf(t))
	}
	tail := pack.Uint(pack.Strings(nil, texts), uint64(x.o.Events))
	now := time.Now().UnixNano()
	for i := range x.o.Events {
		b, mark := pack.Begin(tail)
		b = pack.Uint(b, 1) // it has a value
		b = pack.Uint(pack.Uint(pack.Uint(b, uint64(2+i%x.o.Tenants)), 0), 1)
		at := int64(0) // after the event before
		if i == 0 {
			at = now
		}
		b = pack.Int(pack.Int(b, at), 1)
		tail = pack.End(pack.Uint(pack.Uint(b, 0), 0), mark)
	}
	return x.batches(ctx, "bench-binary-", tail)
}

// batches sends the same events again and again, each time as another batch of a connection's own producer.
func (x *run) batches(ctx context.Context, producer string, tail []byte) (Door, error) {
	epoch := uint64(time.Now().UnixNano())
	return x.load(ctx, func(ctx context.Context, worker int, sequence uint64) (int, []byte, error) {
		b, mark := pack.Begin(make([]byte, 0, len(tail)+64))
		b = pack.String(pack.Uint(b, 1), producer+strconv.Itoa(worker))
		b = pack.Uint(pack.Uint(b, epoch), sequence)
		return x.ask(ctx, "POST", "/v1/usage/batch", bytes.NewReader(pack.End(append(b, tail...), mark)), nil)
	})
}

func tenantOf(t int) string { return "tenant-" + strconv.Itoa(t) }

// json sends arrays of events.
func (x *run) json(ctx context.Context) (Door, error) {
	var b strings.Builder
	for i := range x.o.Events {
		fmt.Fprintf(&b, "%c{\"source\":\"bench\",\"tenant\":%q,\"product\":%q,\"value\":1}", "[,"[min(i, 1)],
			tenantOf(i%x.o.Tenants), product)
	}
	body := b.String() + "]"
	epoch := strconv.FormatInt(time.Now().UnixNano(), 10)
	return x.load(ctx, func(ctx context.Context, worker int, sequence uint64) (int, []byte, error) {
		return x.ask(ctx, "POST", "/v1/usage/events", strings.NewReader(body), map[string]string{
			"Content-Type": "application/json", "Usage-Producer": "bench-json-" + strconv.Itoa(worker),
			"Usage-Epoch": epoch, "Usage-Sequence": strconv.FormatUint(sequence, 10)})
	})
}

// dogstatsd sends packets as large as a network takes them, and asks what was counted. What the kernel drops is the
// door's limit too, so Events below Sent is no error.
func (x *run) dogstatsd(ctx context.Context) (Door, error) {
	const tenant = "bench-statsd"
	var packet []byte
	lines := 0
	for line := product + ":1|c|#tenant:" + tenant + "\n"; len(packet)+len(line) < 1432; lines++ {
		packet = append(packet, line...)
	}
	within, cancel := context.WithTimeout(ctx, x.o.Duration)
	defer cancel()
	var sent atomic.Int64
	var wg sync.WaitGroup
	failed := make([]error, x.o.Connections)
	began := time.Now()
	for w := range x.o.Connections {
		wg.Go(func() {
			nc, err := net.Dial("udp", x.udp)
			if err != nil {
				failed[w] = err
				return
			}
			defer func() { _ = nc.Close() }()
			for within.Err() == nil {
				if _, err := nc.Write(packet); err != nil {
					failed[w] = err
					return
				}
				sent.Add(int64(lines))
			}
		})
	}
	wg.Wait()
	d := Door{Sent: sent.Load(), Seconds: time.Since(began).Seconds()}
	for _, err := range failed {
		if err != nil {
			return d, err
		}
	}
	last := int64(-1)
	err := spawn.Until(ctx, time.Minute, "counts that do not grow any more", func() error {
		status, body, err := x.ask(ctx, "GET", "/v1/usage/estimates?window=1h&tenant="+tenant+"&product="+product, nil, nil)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %s %w", status, body, err)
		}
		var answer struct{ Value json.Number }
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		n, err := answer.Value.Int64()
		if err != nil {
			return err
		}
		if n != last || n == 0 {
			last = n
			select { // the plane gathers what comes by UDP for so long
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			return fmt.Errorf("%d and growing", n)
		}
		return nil
	})
	d.Events, d.PerSecond = last, float64(last)/d.Seconds
	return d, err
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes a table.
func (r *Report) WriteText(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "%-10s %14s %14s %14s %8s\n", "door", "events/s", "counted", "sent", "refused") // see below
	for _, d := range r.Doors {
		_, _ = fmt.Fprintf(w, "%-10s %14.0f %14d %14d %8d\n", d.Door, d.PerSecond, d.Events, d.Sent, d.Pushed)
	}
	for _, m := range r.Missing {
		_, _ = fmt.Fprintf(w, "NOT RUN: %s\n", m)
	}
	if r.Identities != nil {
		_, _ = fmt.Fprint(w, r.Identities.text())
	}
	text := ""
	if r.Floors != nil {
		text = r.Floors.Text()
	}
	_, err := fmt.Fprintln(w, text) // the first error is also the last one's
	return err
}
