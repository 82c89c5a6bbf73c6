package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// SinkReport tells what a sink that misbehaves did to a server.
type SinkReport struct {
	Writes  int
	Slowest time.Duration
	Dropped float64
}

// Sinks are the misbehaving sinks that RunSink knows.
var Sinks = []string{"none", "unix datagrams never read", "unix stream never read", "name that does not resolve",
	"tcp that stalls", "otlp that stalls"}

// sinkConfig makes the sink and the configuration that points at it.
func sinkConfig(kind, dir string) (hcl string, stop func(), err error) {
	stop = func() {}
	switch kind {
	case "none":
		return "", stop, nil
	case "unix datagrams never read":
		path := filepath.Join(dir, "sink.sock")
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			return "", stop, err
		}
		return fmt.Sprintf("telemetry { dogstatsd_addr = \"unix://%s\" }", path), func() { _ = conn.Close() }, nil
	case "unix stream never read":
		path := filepath.Join(dir, "stream.sock")
		_, stop, err := Stalling("unix", path)
		return fmt.Sprintf("telemetry { dogstatsd_addr = \"unixstream://%s\" }", path), stop, err
	case "name that does not resolve":
		return "telemetry { statsd_address = \"no-such-host.invalid:8125\" }", stop, nil
	case "tcp that stalls":
		addr, stop, err := Stalling("tcp", "127.0.0.1:0")
		return fmt.Sprintf("telemetry { statsite_address = %q }", addr), stop, err
	case "otlp that stalls":
		addr, stop, err := Stalling("tcp", "127.0.0.1:0")
		return fmt.Sprintf("telemetry { otlp_endpoint = \"http://%[1]s\" otlp_traces_endpoint = \"http://%[1]s\" }", addr),
			stop, err
	}
	return "", stop, fmt.Errorf("unknown sink %q", kind)
}

// Stalling listens and accepts, and never reads: its buffers are small, so that they fill soon.
func Stalling(network, address string) (addr string, stop func(), err error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return "", func() {}, err
	}
	var wg sync.WaitGroup
	var held []net.Conn
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if c, ok := conn.(interface{ SetReadBuffer(int) error }); ok {
				_ = c.SetReadBuffer(4096) // a larger one only takes longer to fill
			}
			held = append(held, conn)
		}
	})
	return l.Addr().String(), func() {
		_ = l.Close()
		wg.Wait()
		for _, conn := range held {
			_ = conn.Close()
		}
	}, nil
}

// RunSink is B1 in counted work: a server with the sink starts, takes writes at
// once, and says what it dropped. The comparison of latencies is a matter of pairs: see the deep command.
func RunSink(ctx context.Context, l *faultrun.Lab, kind string, writes int) (report SinkReport, err error) {
	hcl, stop, err := sinkConfig(kind, l.Dir)
	if err != nil {
		return report, err
	}
	defer stop()
	shape := harness.Config{Servers: 1}
	if hcl != "" {
		shape.HCL = []string{hcl}
	}
	c, err := l.Open(ctx, shape)
	if err != nil {
		return report, err
	}
	defer c.Close()
	write := func() error {
		r := c.Admin.Do(ctx, "PUT", "/v1/kv/sink", fmt.Append(nil, report.Writes))
		if r.Outcome != history.OK {
			return spawn.Hopeless(fmt.Errorf("write %d: %s", report.Writes, r))
		}
		report.Writes++
		report.Slowest = max(report.Slowest, r.Took)
		return nil
	}
	for range writes {
		if err := write(); err != nil {
			return report, err
		}
	}
	if kind != "none" {
		err = spawn.Until(ctx, 90*time.Second, "drops to be counted", func() error {
			for range 100 { // what the buffers of the system still take is not dropped
				if err := write(); err != nil {
					return err
				}
			}
			_ = spawn.Sleep(ctx, 50*time.Millisecond) // others test beside this one
			list, err := metrics(ctx, c.Admin)
			for _, m := range list {
				if strings.Contains(m.Name, "telemetry.sink.dropped") {
					report.Dropped = max(report.Dropped, m.Sum, m.Value)
				}
			}
			if err == nil && report.Dropped == 0 {
				err = errors.New("none is counted")
			}
			return err
		})
	}
	if err = errors.Join(err, c.Damage()); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs())
	}
	return report, err
}
