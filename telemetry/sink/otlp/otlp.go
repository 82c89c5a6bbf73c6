// Package otlp sends the registry's totals to an OpenTelemetry collector: OTLP over
// HTTP with protobuf bodies, POST to .../v1/metrics every ten seconds.
//
// Sums and histograms are cumulative since the process began, so an export that fails
// loses nothing but its moment in time; its points are counted in telemetry.sink.dropped.
// There is no queue: one export at a time, each request bounded in points and by a
// deadline. Connections are given up every 30 s, so that a changed address is followed.
// Host names go into the resource, not into metric names.
//
// Traces, beside it, sends spans of requests to .../v1/traces: from a bounded queue, one POST at a time.
package otlp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/proto"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

const (
	exportEvery    = 10 * time.Second
	exportTimeout  = 5 * time.Second
	reconnectEvery = 30 * time.Second
	// pointLimit bounds one request: 2,000 histograms of 41 buckets are under 1 MB.
	pointLimit = 2000
)

// Config makes a Sink.
type Config struct {
	Endpoint string // http(s)://host:port; a path of "" or "/" means /v1/metrics
	Host     string // host.name of the resource
	Registry *telemetry.Registry
	Clock    clock.Clock   // nil means the machine's
	Logger   *slog.Logger  // nil discards
	Client   *http.Client  // nil means one of its own with deadlines
	Every    time.Duration // 0 means 10 s
}

// Sink is one collector. Run it once.
type Sink struct {
	cfg     Config
	url     string
	encoder encoder
	delivery
}

// parseEndpoint checks an endpoint and completes its path.
func parseEndpoint(s, path string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", errkind.Errorf(errkind.Invalid, "address %q is not http://host:port or https://host:port", s)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = path
	}
	return u.String(), nil
}

// New makes a Sink; it opens nothing.
func New(cfg Config) (*Sink, error) {
	address, err := parseEndpoint(cfg.Endpoint, "/v1/metrics")
	if err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Client == nil {
		cfg.Client = newClient(exportTimeout)
	}
	if cfg.Every <= 0 {
		cfg.Every = exportEvery
	}
	return &Sink{
		cfg: cfg, url: address,
		encoder:  encoder{registry: cfg.Registry, host: cfg.Host, start: cfg.Clock.Now()},
		delivery: newDelivery("otlp", "points", cfg.Registry, cfg.Logger, cfg.Client),
	}, nil
}

// Run exports every ten seconds until ctx ends.
func (s *Sink) Run(ctx context.Context) error {
	defer s.cfg.Client.CloseIdleConnections()
	timer := s.cfg.Clock.NewTimer(s.cfg.Every)
	defer timer.Stop()
	connected := s.cfg.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := s.cfg.Clock.Now()
		if now.Sub(connected) >= reconnectEvery {
			s.cfg.Client.CloseIdleConnections()
			connected = now
		}
		s.export(ctx, now)
		timer.Reset(s.cfg.Every)
	}
}

// export sends all points, in requests of at most pointLimit. The first request that
// fails ends it: a collector that is down is asked once per interval.
func (s *Sink) export(ctx context.Context, now time.Time) {
	list, points := s.encoder.collect(now)
	done := 0
	for len(list) > 0 {
		batch := 0
		n := 0
		for n < len(list) && (n == 0 || batch+pointCount(list[n]) <= pointLimit) {
			batch += pointCount(list[n])
			n++
		}
		if err := s.post(ctx, list[:n]); err != nil {
			s.failed(ctx, err, points-done)
			return
		}
		s.sent.Add(uint64(batch))
		done, list = done+batch, list[n:]
	}
	s.recovered()
}

func (s *Sink) post(ctx context.Context, list []*metrics.Metric) error {
	body, err := proto.Marshal(&collector.ExportMetricsServiceRequest{
		ResourceMetrics: []*metrics.ResourceMetrics{{
			Resource:     s.encoder.resource(),
			ScopeMetrics: []*metrics.ScopeMetrics{{Metrics: list}},
		}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	response, err := s.send(ctx, s.url, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// Read a little, so that the connection can be used again; more is not wanted.
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s", response.Status)
	}
	return nil
}
