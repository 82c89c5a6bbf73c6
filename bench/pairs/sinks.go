package pairs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
)

// SinksOptions are the options of the bench of blocked telemetry sinks.
type SinksOptions struct {
	bench.Options
	// Pairs is how many pairs of runs are made, one with and one without the sinks.
	Pairs int
}

// RunSinks measures what telemetry sinks that take nothing cost the writes: two servers,
// one of them with a dogstatsd socket and OTLP endpoints of metrics and traces that accept and never read and
// a statsd name that does not resolve. Runs alternate; the row's ratios are with over
// without, pair by pair.
func RunSinks(ctx context.Context, o SinksOptions) (*bench.Result, error) {
	if o.Pairs == 0 {
		o.Pairs = 20
	}
	if o.Duration == 0 {
		o.Duration = 2 * time.Second
	}
	if o.Pairs < 1 || o.Pairs > 1000 {
		return nil, fmt.Errorf("--pairs: must be between 1 and 1000, not %d", o.Pairs)
	}
	if o.Target != "" {
		return nil, errors.New("--target: this bench starts the two servers that it compares")
	}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	deaf, err := listenDeaf()
	if err != nil {
		return nil, err
	}
	defer deaf.close()
	plain, blocked := o.Options, o.Options
	plain.ServerArgs = append(slices.Clone(o.ServerArgs), "-hcl", `telemetry { prometheus_retention_time = "1h" }`)
	blocked.ServerArgs = append(slices.Clone(o.ServerArgs), "-hcl", fmt.Sprintf(
		`telemetry { prometheus_retention_time = "1h" dogstatsd_addr = "unixstream://%[1]s" statsd_address = `+
			`"metrics.invalid:8125" otlp_endpoint = "http://%[2]s" otlp_traces_endpoint = "http://%[2]s" }`,
		deaf.path, deaf.tcp.Addr()))
	without, err := bench.OpenTarget(ctx, &plain)
	if err != nil {
		return nil, err
	}
	defer without.Stop()
	with, err := bench.OpenTarget(ctx, &blocked)
	if err != nil {
		return nil, err
	}
	defer with.Stop()
	r := bench.NewResult("sinks", &o.Options)
	if err := sinkPairs(ctx, &o, without, with, r); err != nil {
		return nil, err
	}
	dropped, err := droppedLines(ctx, with)
	if err != nil {
		return nil, err
	}
	r.Rows[len(r.Rows)-1].Note += ", dropped " + dropped
	return r, nil
}

func sinkPairs(ctx context.Context, o *SinksOptions, without, with *bench.Target, r *bench.Result) error {
	var p99, rate []float64
	var off, on []float64
	for pair := range o.Pairs {
		order := []*bench.Target{without, with}
		if pair%2 == 1 {
			slices.Reverse(order)
		}
		loads := map[*bench.Target]*bench.LoadResult{}
		for _, c := range order {
			load, err := bench.RunLoad(ctx, bench.LoadSpec{Addr: c.HTTP, Connections: o.Connections, Duration: o.Duration,
				Warmup: o.Duration / 10,
				Next: func(int, int64) []byte {
					return bench.Request("PUT", c.HTTP, fmt.Sprintf("/v1/kv/bench/%d", rand.IntN(bench.KvKeys)), "",
						make([]byte, bench.KvValueBytes))
				}})
			if err != nil {
				return err
			}
			loads[c] = load
		}
		a, b := bench.Millis(loads[without].Hist)["p99"], bench.Millis(loads[with].Hist)["p99"]
		off, on = append(off, a), append(on, b)
		p99 = append(p99, b/a)
		rate = append(rate, float64(loads[with].Requests)/float64(loads[without].Requests))
		o.Say("pair %d of %d: p99 %.2f ms without, %.2f ms with the sinks", pair+1, o.Pairs, a, b)
	}
	what := fmt.Sprintf("KV PUT -c%d, p99 ", o.Connections)
	r.Rows = append(r.Rows,
		bench.Row{What: what + "without sinks", Millis: map[string]float64{"p99": median(off)}},
		bench.Row{What: what + "with three blocked sinks", Millis: map[string]float64{"p99": median(on)},
			Note: fmt.Sprintf("median ratio of p99 %.3f, of the rate %.3f, %d pairs of %s", median(p99), median(rate), o.Pairs,
				o.Duration)})
	return nil
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// droppedWithin is more than the slowest sink takes to give up its first data.
const droppedWithin = 30 * time.Second

// droppedLines proves that the sinks were blocked: what the server says that it dropped.
func droppedLines(ctx context.Context, c *bench.Target) (string, error) {
	for begin := time.Now(); ; bench.Settle(ctx, 200*time.Millisecond) {
		dropped, err := readDropped(ctx, c)
		if err != nil || dropped != "" {
			return dropped, err
		}
		if ctx.Err() != nil || time.Since(begin) > droppedWithin {
			return "", errors.New("the server with blocked sinks counted no drops: they were not blocked")
		}
	}
}

// readDropped lists the sinks that dropped something, and how much.
func readDropped(ctx context.Context, c *bench.Target) (string, error) {
	conn, err := bench.DialWire(ctx, c.HTTP, 64<<10)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	r, err := conn.Do(bench.Request("GET", c.HTTP, "/v1/agent/metrics?format=prometheus", c.Opts.Token, nil), true,
		bench.IoDeadline)
	if err != nil {
		return "", err
	}
	var found []string
	for line := range strings.SplitSeq(string(r.Body), "\n") {
		if name, rest, ok := strings.Cut(line, "telemetry_sink_dropped"); ok && !strings.HasPrefix(name, "#") {
			labels, count, _ := strings.Cut(strings.TrimPrefix(rest, "_total"), " ")
			if count != "0" {
				found = append(found, strings.Trim(labels, "{}")+" "+count)
			}
		}
	}
	return strings.Join(found, ", "), nil
}

// deafPeers accept connections, in the kernel, and never read.
type deafPeers struct {
	dir, path string
	unix, tcp net.Listener
}

func listenDeaf() (*deafPeers, error) {
	dir, err := os.MkdirTemp("", "corbel-deaf")
	if err != nil {
		return nil, err
	}
	d := &deafPeers{dir: dir, path: filepath.Join(dir, "dsd")}
	if d.unix, err = net.Listen("unix", d.path); err == nil {
		d.tcp, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *deafPeers) close() {
	for _, l := range []net.Listener{d.unix, d.tcp} {
		if l != nil {
			_ = l.Close()
		}
	}
	_ = os.RemoveAll(d.dir)
}
