// Package cacheload measures the remote cache of the usage plane beside redis-server and valkey-server in the same run:
// the same commands, connections and keys, one server after the other. What the generator and the loopback can do by
// themselves is the floor.
package cacheload

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
)

// Options of a run.
type Options struct {
	bench.Options
	// Keys is how many different keys there are; zero means 100,000. ValueBytes is the length of a value; zero means 64.
	Keys, ValueBytes int
}

// Row is a command at a pipeline: how many a second each server answers.
type Row struct {
	Command  string `json:"command"`
	Pipeline int    `json:"pipeline"`
	// Servers are corbel, and redis and valkey where they are installed; floor is a server that does nothing.
	Servers map[string]Rate `json:"servers"`
}

// Rate is what one server did. A round trip is a pipeline's.
type Rate struct {
	PerSecond float64 `json:"operations_per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

// Report is what was measured.
type Report struct {
	Bench       string             `json:"bench"`
	Connections int                `json:"connections"`
	Seconds     float64            `json:"seconds_each"`
	Commands    []Row              `json:"commands"`
	Floors      map[string]float64 `json:"floors"` // operations a second of a server that does nothing, by pipeline
	Missing     []string           `json:"missing,omitempty"`
}

// load is a command of the bench: its words for a key.
type load struct {
	name  string
	words func(key int, value string) []string
	fills bool // the keys are to be there
}

var loads = []load{
	{"SET", func(k int, v string) []string { return []string{"SET", "bench:" + strconv.Itoa(k), v} }, false},
	{"GET", func(k int, _ string) []string { return []string{"GET", "bench:" + strconv.Itoa(k)} }, true},
	{"SISMEMBER", func(k int, _ string) []string {
		return []string{"SISMEMBER", "bench:s" + strconv.Itoa(k%100), strconv.Itoa(k)}
	}, true},
	{"PFADD", func(k int, _ string) []string {
		return []string{"PFADD", "bench:p" + strconv.Itoa(k%100), strconv.Itoa(k)}
	}, false},
}

var pipelines = []int{1, 16}

// server is one that is measured.
type server struct{ name, addr string }

// Run measures.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	o.Connections, o.Keys = cmp.Or(o.Connections, 16), cmp.Or(o.Keys, 100_000)
	o.ValueBytes, o.Duration = cmp.Or(o.ValueBytes, 64), cmp.Or(o.Duration, 10*time.Second)
	r := &Report{Bench: "cache", Connections: o.Connections, Seconds: o.Duration.Seconds(), Floors: map[string]float64{}}
	ports, err := testport.Free(1)
	if err != nil {
		return nil, err
	}
	o.HCL = append(o.HCL, fmt.Sprintf("usage { enabled = false, cache { port = %d } }", ports[0]))
	o.Target = "" // the cache's port is not the HTTP API's
	c, err := bench.OpenTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	list := []server{{"corbel", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))}}
	for _, name := range []string{"redis", "valkey"} {
		addr, stop, err := oracle(ctx, name+"-server", c.Dir)
		if err != nil {
			r.Missing = append(r.Missing, err.Error())
			continue
		}
		defer stop()
		list = append(list, server{name, addr})
	}
	floor, stop, err := idle(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	list = append(list, server{"floor", floor})
	for _, l := range loads {
		for _, depth := range pipelines {
			row := Row{Command: l.name, Pipeline: depth, Servers: map[string]Rate{}}
			for _, s := range list {
				o.Say("%s, pipeline %d: %s ...", l.name, depth, s.name)
				rate, err := measure(ctx, &o, l, depth, s)
				if err != nil {
					return nil, fmt.Errorf("%s at %s: %w", l.name, s.name, err)
				}
				if s.name == "floor" {
					key := "pipeline_" + strconv.Itoa(depth)
					r.Floors[key] = max(r.Floors[key], rate.PerSecond)
					continue
				}
				row.Servers[s.name] = rate
			}
			r.Commands = append(r.Commands, row)
		}
	}
	return r, nil
}

// oracle starts a server that keeps nothing on a disk.
func oracle(ctx context.Context, program, dir string) (addr string, stop func(), err error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", nil, fmt.Errorf("%s is not installed: nothing was compared with it", program)
	}
	ports, err := testport.Free(1)
	if err != nil {
		return "", nil, err
	}
	port := strconv.Itoa(ports[0])
	p, err := bench.StartProcess(path, []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no",
		"--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru"}, dir)
	if err != nil {
		return "", nil, err
	}
	addr = net.JoinHostPort("127.0.0.1", port)
	err = spawn.Until(ctx, 30*time.Second, program, func() error {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			err = nc.Close()
		}
		return err
	})
	stop = func() { _ = p.End(nil, 10*time.Second) } // it keeps nothing
	if err != nil {
		stop()
	}
	return addr, stop, err
}

// idle is a server that answers each line of a PING or of any command of the bench with OK, and does nothing else.
func idle(ctx context.Context) (addr string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	context.AfterFunc(ctx, func() { _ = ln.Close() })
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			end := context.AfterFunc(ctx, func() { _ = nc.Close() })
			wg.Go(func() {
				defer end()
				defer func() { _ = nc.Close() }()
				answerAll(nc)
			})
		}
	})
	return ln.Addr().String(), func() { cancel(); wg.Wait() }, nil
}

// answerAll finds the ends of commands and nothing of what they say.
func answerAll(nc net.Conn) {
	in, out := bufio.NewReaderSize(nc, 64<<10), bufio.NewWriterSize(nc, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil || line[0] != '*' {
			return
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:]))) // our own generator wrote it
		for range 2 * n {
			if _, err := in.ReadSlice('\n'); err != nil {
				return
			}
		}
		_, _ = out.WriteString("+OK\r\n") // Flush tells
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// measure runs a command for the time that the options say.
func measure(ctx context.Context, o *Options, l load, depth int, s server) (Rate, error) {
	value := strings.Repeat("v", o.ValueBytes)
	if l.fills && s.name != "floor" {
		if err := fill(o, s.addr, value); err != nil {
			return Rate{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	var wg sync.WaitGroup
	took := make([][]time.Duration, o.Connections)
	failed := make([]error, o.Connections)
	began := time.Now()
	for i := range o.Connections {
		wg.Go(func() {
			took[i], failed[i] = drive(ctx, s.addr, batches(o, l, depth, i, value), depth)
		})
	}
	wg.Wait()
	seconds := time.Since(began).Seconds()
	for _, err := range failed {
		if err != nil {
			return Rate{}, err
		}
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) == 0 {
		return Rate{}, fmt.Errorf("nothing was answered in %s", o.Duration)
	}
	ms := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / float64(time.Millisecond) }
	return Rate{PerSecond: float64(len(all)*depth) / seconds, P50: ms(0.5), P99: ms(0.99)}, nil
}

// fill writes what GET and SISMEMBER are to find.
func fill(o *Options, addr, value string) error {
	var list [][]byte
	for from := 0; from < o.Keys; from += 500 {
		var b []byte
		for k := from; k < from+500; k++ {
			b = appendWords(b, "SET", "bench:"+strconv.Itoa(k), value)
			b = appendWords(b, "SADD", "bench:s"+strconv.Itoa(k%100), strconv.Itoa(k))
		}
		list = append(list, b)
	}
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = nc.Close() }()
	in := bufio.NewReaderSize(nc, 64<<10)
	for _, b := range list {
		if err := exchange(nc, in, b, 1000); err != nil {
			return err
		}
	}
	return nil
}

func appendWords(b []byte, words ...string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(words)), 10), "\r\n"...)
	for _, w := range words {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(w)), 10), "\r\n"...)
		b = append(append(b, w...), "\r\n"...)
	}
	return b
}

// batches are some pipelines of a connection, so that encoding is not measured.
func batches(o *Options, l load, depth, worker int, value string) (list [][]byte) {
	x := uint64(worker)*0x9e3779b97f4a7c15 + 1
	for range 256 {
		var b []byte
		for range depth {
			x ^= x << 13 // xorshift: the same keys in each run
			x ^= x >> 7
			x ^= x << 17
			b = appendWords(b, l.words(int(x%uint64(o.Keys)), value)...)
		}
		list = append(list, b)
	}
	return list
}

// drive sends one pipeline after the other.
func drive(ctx context.Context, addr string, list [][]byte, depth int) (took []time.Duration, err error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = nc.Close() }()
	in := bufio.NewReaderSize(nc, 64<<10)
	for i := 0; ctx.Err() == nil; i++ {
		begin := time.Now()
		if err := exchange(nc, in, list[i%len(list)], depth); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

// exchange sends commands and reads as many answers; an error among them is one.
func exchange(nc net.Conn, in *bufio.Reader, b []byte, answers int) error {
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := nc.Write(b); err != nil {
		return err
	}
	for range answers {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch line[0] {
		case '-':
			return fmt.Errorf("the server says %s", strings.TrimSpace(string(line[1:])))
		case '$':
			n, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
			if err != nil {
				return err
			}
			if n >= 0 {
				if _, err := in.Discard(n + 2); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes a table.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "command\tpipeline\tserver\toperations/s\tp50 ms\tp99 ms\tof redis\t\n") // Flush tells
	for _, row := range r.Commands {
		for _, name := range []string{"corbel", "redis", "valkey"} {
			rate, ok := row.Servers[name]
			if !ok {
				continue
			}
			share := "-"
			if base := row.Servers["redis"].PerSecond; base > 0 {
				share = fmt.Sprintf("%.2f", rate.PerSecond/base)
			}
			_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t%.0f\t%.3f\t%.3f\t%s\t\n", row.Command, row.Pipeline, name, rate.PerSecond,
				rate.P50, rate.P99, share)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, depth := range pipelines {
		_, _ = fmt.Fprintf(w, "floor, a server that does nothing, pipeline %d: %.0f operations/s\n", depth,
			r.Floors["pipeline_"+strconv.Itoa(depth)])
	}
	for _, m := range r.Missing {
		_, _ = fmt.Fprintf(w, "NOT RUN: %s\n", m)
	}
	return nil
}
