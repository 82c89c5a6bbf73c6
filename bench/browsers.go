package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// BrowsersOptions are the options of the web UI's bench.
type BrowsersOptions struct {
	Options
	// Browsers hold a stream each, as one that shows the overview does.
	Browsers int
	// Nodes of the simulated fleet, each with six instances and four checks.
	Nodes int
	// ChangesPerSecond is the rate of check flips meanwhile.
	ChangesPerSecond int
}

func (o *BrowsersOptions) complete() error {
	for _, d := range []struct {
		to    *int
		value int
	}{{&o.Browsers, 50}, {&o.Nodes, 10000}, {&o.ChangesPerSecond, 100}} {
		if *d.to == 0 {
			*d.to = d.value
		}
	}
	switch {
	case o.Browsers < 1 || o.Browsers > 1000:
		return fmt.Errorf("--browsers: must be between 1 and 1000, not %d", o.Browsers)
	case o.Nodes < 1 || o.Nodes > 100000:
		return fmt.Errorf("--nodes: must be between 1 and 100000, not %d", o.Nodes)
	case o.ChangesPerSecond < 1 || o.ChangesPerSecond > 10000:
		return fmt.Errorf("--changes: must be between 1 and 10000, not %d", o.ChangesPerSecond)
	}
	return o.Complete()
}

// RunBrowsers measures what open browsers cost a server: its processor time and the times of writes, without them and
// with them, and how long the first rows of a list take. The browsers are played: they read streams and draw nothing.
func RunBrowsers(ctx context.Context, o BrowsersOptions) (*Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c, err := OpenTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	if err := fillFleet(ctx, c, o.Nodes); err != nil {
		return nil, err
	}
	r := NewResult("ui", &o.Options)
	first, err := firstRows(ctx, c)
	if err != nil {
		return nil, err
	}
	r.Rows = append(r.Rows, first)
	alone, idle, err := flipChecks(ctx, c, &o)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	b, err := openBrowsers(watching, c, o.Browsers)
	if err != nil {
		return nil, err
	}
	beside, busy, err := flipChecks(ctx, c, &o)
	stop()
	if err = errors.Join(err, b.wait()); err != nil {
		return nil, err
	}
	alone.What, beside.What = "check flips alone", fmt.Sprintf("check flips beside %d browsers", o.Browsers)
	alone.Note = fmt.Sprintf("the server took %.3f cores", idle)
	beside.Note = fmt.Sprintf("the server took %.3f cores: %.3f for the browsers, which got %d lines", busy, busy-idle,
		b.lines.Load())
	beside.RSSBytes = c.rssBytes()
	r.Rows = append(r.Rows, alone, beside)
	return r, nil
}

// firstRows times the first page of a list that nobody looked at before, then again.
func firstRows(ctx context.Context, c *Target) (Row, error) {
	row := Row{What: "first page of instances", Requests: 2, Millis: map[string]float64{}}
	for _, name := range []string{"max", "p50"} { // made anew, then as it is kept
		begin := time.Now()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.HTTP+"/ui/api/topic/instances?from=0&rows=200",
			nil)
		if err != nil {
			return row, err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return row, err
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			return row, fmt.Errorf("the web UI's instances: %s %.200s: %w", answer.Status, text, err)
		}
		row.Millis[name] = float64(time.Since(begin).Microseconds()) / 1000
		row.Note = fmt.Sprintf("answer of %d bytes", len(text))
	}
	return row, nil
}

// flipChecks flips checks at the asked rate, and tells how many cores the server took.
func flipChecks(ctx context.Context, c *Target, o *BrowsersOptions) (Row, float64, error) {
	const writers = 4
	before, begin := c.cpu(), time.Now()
	flips, err := RunLoad(ctx, LoadSpec{Addr: c.HTTP, Connections: writers, Duration: o.Duration,
		Pace: writers * time.Second / time.Duration(o.ChangesPerSecond), Next: func(_ int, n int64) []byte {
			var b bytes.Buffer
			b.WriteByte('[')
			fleetCheck(&b, rand.IntN(o.Nodes), rand.IntN(fleetChecksPerNode), [...]string{"warning", "passing"}[n%2])
			b.WriteByte(']')
			return Request("PUT", c.HTTP, "/v1/txn", o.Token, b.Bytes())
		}})
	if err != nil {
		return Row{}, 0, err
	}
	return flips.Row("", ""), (c.cpu() - before) / time.Since(begin).Seconds(), nil
}

// cpu is the processor time of the servers of the bench's own, in seconds.
func (c *Target) cpu() (sum float64) {
	for _, s := range c.Started() {
		sum += s.CPU()
	}
	return sum
}

// browsers are played: each reads one stream.
type browsers struct {
	readers sync.WaitGroup
	lines   atomic.Int64
	mu      sync.Mutex
	err     error // guarded by mu; the first
}

// openBrowsers opens the streams, and returns once each has had its first line.
func openBrowsers(ctx context.Context, c *Target, n int) (*browsers, error) {
	c.Opts.Say("opening the overview in %d browsers ...", n)
	b, begun := &browsers{}, make(chan struct{}, n)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	for range n {
		b.readers.Go(func() {
			if err := b.read(ctx, client, c.HTTP, begun); err != nil && ctx.Err() == nil {
				b.mu.Lock()
				b.err = errors.Join(b.err, err)
				b.mu.Unlock()
				begun <- struct{}{}
			}
		})
	}
	for range n {
		select {
		case <-begun:
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b, b.err
}

func (b *browsers) read(ctx context.Context, client *http.Client, addr string, begun chan<- struct{}) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/ui/api/stream",
		strings.NewReader(`{"topics":[{"name":"overview","since":0}]}`))
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the web UI's stream: %s", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 16<<20)
	told := false
	for lines.Scan() {
		if b.lines.Add(1); !told {
			begun <- struct{}{}
			told = true
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the web UI's stream ended")
}

// wait waits until all streams have ended.
func (b *browsers) wait() error {
	b.readers.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
