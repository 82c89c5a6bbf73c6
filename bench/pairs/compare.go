package pairs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/secretsload"
)

// CompareOptions are the options of the pairwise comparison of two binaries.
type CompareOptions struct {
	bench.Options
	Old, New string
	// Pairs is how many pairs of runs are made; the order alternates within pairs.
	Pairs int
	// LossPercent is the median loss that counts; smaller ones are noise.
	LossPercent float64
	// Only measures the figures whose name begins with it; all where it is empty.
	Only string
}

// Comparison is one figure of both binaries, larger is better.
type Comparison struct {
	What string `json:"what"`
	// Ratios are new over old, pair by pair.
	Ratios []float64 `json:"ratios"`
	Median float64   `json:"median"`
	// Loss tells that new is slower beyond noise.
	Loss bool `json:"loss"`
}

// CompareResult is the outcome of a comparison.
type CompareResult struct {
	Old     string       `json:"old"`
	New     string       `json:"new"`
	Machine string       `json:"machine"`
	Figures []Comparison `json:"figures"`
}

// ErrSlower tells that the new binary lost beyond noise.
var ErrSlower = errors.New("the new binary is slower beyond noise")

// figure is one short bench reduced to a number, larger is better.
type figure struct {
	what string
	run  func(ctx context.Context, o bench.Options) (float64, error)
}

func perSecond(r *bench.Result, err error, row int) (float64, error) {
	if err != nil {
		return 0, err
	}
	return r.Rows[row].PerSecond, nil
}

func compareFigures() []figure {
	return []figure{
		{"KV PUT/s", func(ctx context.Context, o bench.Options) (float64, error) {
			r, err := bench.RunKV(ctx, o)
			return perSecond(r, err, 0)
		}},
		{"KV GET/s", func(ctx context.Context, o bench.Options) (float64, error) {
			r, err := bench.RunKV(ctx, o)
			return perSecond(r, err, 1)
		}},
		{"register/s", func(ctx context.Context, o bench.Options) (float64, error) {
			r, err := bench.RunRegister(ctx, o)
			return perSecond(r, err, 0)
		}},
		{"health/s", func(ctx context.Context, o bench.Options) (float64, error) {
			r, err := bench.RunHealth(ctx, bench.HealthOptions{Options: o})
			return perSecond(r, err, 0)
		}},
		{"fan-outs/s (1/p99)", func(ctx context.Context, o bench.Options) (float64, error) {
			r, err := bench.RunWatch(ctx, bench.WatchOptions{Options: o, Watchers: 500, Rounds: 5})
			if err != nil {
				return 0, err
			}
			return 1000 / r.Rows[0].Millis["p99"], nil
		}},
		{"DNS/s", func(ctx context.Context, o bench.Options) (float64, error) {
			r, err := bench.RunDNS(ctx, bench.DNSOptions{Options: o})
			return perSecond(r, err, 0)
		}},
		{"secrets written/s", func(ctx context.Context, o bench.Options) (float64, error) {
			return compareSecrets(ctx, o, 0)
		}},
		{"secrets read/s", func(ctx context.Context, o bench.Options) (float64, error) { return compareSecrets(ctx, o, 1) }},
	}
}

func compareSecrets(ctx context.Context, o bench.Options, row int) (float64, error) {
	r, err := secretsload.RunSecrets(ctx, secretsload.KVSecretsOptions{
		SecretsOptions: secretsload.SecretsOptions{Options: o, Backend: "raft"}})
	return perSecond(r, err, row)
}

// RunCompare measures both binaries in pairs. It returns ErrSlower beside the
// result when a figure's median ratio is below 1-LossPercent/100 and at least
// three quarters of its pairs lost.
func RunCompare(ctx context.Context, o CompareOptions) (*CompareResult, error) {
	if o.Old == "" || o.New == "" {
		return nil, errors.New("give two binaries: corbel bench compare OLD NEW")
	}
	if o.Pairs == 0 {
		o.Pairs = 7
	}
	if o.LossPercent == 0 {
		o.LossPercent = 5
	}
	if o.Duration == 0 {
		o.Duration = 3 * time.Second
	}
	o.SkipFloors = true
	if err := o.Complete(); err != nil {
		return nil, err
	}
	figures := slices.DeleteFunc(compareFigures(), func(f figure) bool { return !strings.HasPrefix(f.what, o.Only) })
	if len(figures) == 0 {
		return nil, fmt.Errorf("--only: no figure begins with %q", o.Only)
	}
	result := &CompareResult{Old: o.Old, New: o.New, Machine: bench.Machine()}
	quiet := o.Options
	quiet.Progress = io.Discard
	lost := false
	for _, f := range figures {
		c := Comparison{What: f.what}
		for pair := range o.Pairs {
			ratio, err := onePair(ctx, f, quiet, o.Old, o.New, pair%2 == 1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.what, err)
			}
			c.Ratios = append(c.Ratios, ratio)
			o.Say("%s: pair %d of %d, new/old %.3f", f.what, pair+1, o.Pairs, ratio)
		}
		c.Median, c.Loss = judge(c.Ratios, o.LossPercent)
		lost = lost || c.Loss
		result.Figures = append(result.Figures, c)
	}
	if lost {
		return result, ErrSlower
	}
	return result, nil
}

func onePair(ctx context.Context, f figure, o bench.Options, oldBinary, newBinary string, newFirst bool) (float64,
	error) {
	measure := func(binary string) (float64, error) {
		o.Binary = binary
		return f.run(ctx, o)
	}
	first, second := oldBinary, newBinary
	if newFirst {
		first, second = newBinary, oldBinary
	}
	a, err := measure(first)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", first, err)
	}
	b, err := measure(second)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", second, err)
	}
	if newFirst {
		return a / b, nil
	}
	return b / a, nil
}

// judge returns the median ratio and whether it is a loss beyond noise.
func judge(ratios []float64, lossPercent float64) (median float64, loss bool) {
	sorted := slices.Sorted(slices.Values(ratios))
	n := len(sorted)
	median = (sorted[(n-1)/2] + sorted[n/2]) / 2
	below := 0
	for _, r := range sorted {
		if r < 1 {
			below++
		}
	}
	return median, median < 1-lossPercent/100 && below*4 >= n*3
}

// WriteJSON writes the comparison as one indented JSON object.
func (r *CompareResult) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the comparison for people.
func (r *CompareResult) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "bench compare  old %s  new %s\n%s\n", r.Old, r.New, r.Machine)
	for _, c := range r.Figures {
		verdict := "ok"
		if c.Loss {
			verdict = "SLOWER"
		}
		fmt.Fprintf(&b, "  %-20s new/old median %.3f over %d pairs  %s\n", c.What, c.Median, len(c.Ratios), verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
