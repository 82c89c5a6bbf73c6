package faultrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/kit/fault/history"
)

// SinkReport tells what a sink that misbehaves did to a server.
type SinkReport struct {
	Writes  int
	Slowest time.Duration
	Dropped float64
}

// Sinks are the misbehaving sinks that RunSink knows.
var Sinks = []string{"none", "unix socket never read", "name that does not resolve", "tcp that stalls"}

// sinkConfig makes the sink and the configuration that points at it.
func sinkConfig(kind, dir string) (hcl string, stop func(), err error) {
	stop = func() {}
	switch kind {
	case "none":
		return "", stop, nil
	case "unix socket never read":
		path := filepath.Join(dir, "sink.sock")
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			return "", stop, err
		}
		return fmt.Sprintf("telemetry { dogstatsd_addr = \"unix://%s\" }", path), func() { _ = conn.Close() }, nil
	case "name that does not resolve":
		return "telemetry { statsd_address = \"no-such-host.invalid:8125\" }", stop, nil
	case "tcp that stalls":
		l, err := net.Listen("tcp", "127.0.0.1:0") // accepted by the system, never by us
		if err != nil {
			return "", stop, err
		}
		return fmt.Sprintf("telemetry { statsite_address = %q }", l.Addr()), func() { _ = l.Close() }, nil
	}
	return "", stop, fmt.Errorf("unknown sink %q", kind)
}

// RunSink is B1 in counted work: a server with the sink starts, takes writes at
// once, and says what it dropped. The comparison of latencies is a matter of pairs: see the deep command.
func (l *Lab) RunSink(ctx context.Context, kind string, writes int) (report SinkReport, err error) {
	hcl, stop, err := sinkConfig(kind, l.Dir)
	if err != nil {
		return report, err
	}
	defer stop()
	shape := Shape{Servers: 1}
	if hcl != "" {
		shape.HCL = []string{hcl}
	}
	c, err := l.Open(ctx, shape)
	if err != nil {
		return report, err
	}
	defer c.Close()
	for i := range writes {
		r := c.admin.Do(ctx, "PUT", "/v1/kv/sink", fmt.Append(nil, i))
		if r.Outcome != history.OK {
			return report, fmt.Errorf("write %d: %s", i, r)
		}
		report.Writes++
		report.Slowest = max(report.Slowest, r.Took)
	}
	if kind != "none" && kind != "tcp that stalls" { // the system's buffers take megabytes before that one blocks
		err = until(ctx, 45*time.Second, "drops to be counted", func() error {
			list, err := c.admin.metrics(ctx)
			for _, m := range list {
				if strings.Contains(m.Name, "telemetry.sink.dropped") {
					report.Dropped += m.Sum + m.Value
				}
			}
			if err == nil && report.Dropped == 0 {
				err = errors.New("none is counted")
			}
			return err
		})
	}
	if err = errors.Join(err, c.Damage()); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.logs())
	}
	return report, err
}
