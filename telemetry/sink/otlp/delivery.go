package otlp

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"time"

	"corbel.dev/corbel/telemetry"
)

// delivery is what sinks have in common: how a collector is asked, and what is counted and said of it. One goroutine
// uses it.
type delivery struct {
	sink, what string // what is dropped while it fails
	registry   *telemetry.Registry
	log        *slog.Logger
	client     *http.Client
	failing    bool

	dropped, sent, failures *telemetry.Counter
	deaf                    *telemetry.Gauge // 1 while it fails
}

func newDelivery(sink, what string, r *telemetry.Registry, log *slog.Logger, client *http.Client) delivery {
	return delivery{sink: sink, what: what, registry: r, log: log, client: client,
		dropped:  r.Counter("telemetry.sink.dropped", "sink", sink),
		sent:     r.Counter("telemetry.sink.sent", "sink", sink),
		failures: r.Counter("telemetry.sink.errors", "sink", sink),
		deaf:     r.Gauge("telemetry.sink.deaf", "sink", sink)}
}

// newClient makes a client of one connection; a timeout of 0 is none.
func newClient(timeout time.Duration) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.IdleConnTimeout = 1, reconnectEvery
	return &http.Client{Transport: transport, Timeout: timeout}
}

// send asks the collector at url once to take a request.
func (d *delivery) send(ctx context.Context, url string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	return d.client.Do(request)
}

// recovered is told that all was delivered.
func (d *delivery) recovered() {
	if d.failing {
		d.failing = false
		d.deaf.Set(0)
		d.registry.Publish(telemetry.SinkRecovered{Sink: d.sink})
		d.log.Info("telemetry sink is delivering again", "sink", d.sink)
	}
}

// failed is told that n were not, which is the collector's fault unless ctx has ended.
func (d *delivery) failed(ctx context.Context, err error, n int) {
	d.dropped.Add(uint64(n))
	if ctx.Err() != nil {
		return
	}
	d.failures.Add(1)
	d.client.CloseIdleConnections()
	if !d.failing {
		d.failing = true
		d.deaf.Set(1)
		d.registry.Publish(telemetry.SinkFailing{Sink: d.sink, Reason: err.Error()})
		d.log.Warn("telemetry sink is not accepting data; "+d.what+" are dropped and counted", "sink", d.sink, "error", err)
	}
}
