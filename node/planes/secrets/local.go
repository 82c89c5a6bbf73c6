package secretsplane

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"corbel.dev/corbel/api/promapi"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

// vaultMetrics makes a registry whose names are as Vault's users know them; its spans go where the process's do.
func vaultMetrics(clk clock.Clock, traces *telemetry.Traces) *telemetry.Registry {
	return telemetry.New(telemetry.Config{Settings: telemetry.Settings{MetricsPrefix: "vault",
		PrometheusRetentionTime: 24 * time.Hour, DisableHostname: true}, Clock: clk, Traces: traces})
}

// page is an answer that is kept rather than sent.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(status int) { p.status = status }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

// metricsOf renders a registry's metrics for the keeper.
func metricsOf(r *telemetry.Registry) func(prometheus bool) (string, []byte, error) {
	handler := promapi.New(r)
	return func(prometheus bool) (string, []byte, error) {
		target := "/"
		if prometheus {
			target = "/?format=prometheus"
		}
		req, err := http.NewRequest(http.MethodGet, target, http.NoBody)
		if err != nil {
			return "", nil, err
		}
		p := &page{header: http.Header{}, status: http.StatusOK}
		handler.ServeHTTP(p, req)
		if p.status != http.StatusOK {
			return "", nil, fmt.Errorf("metrics: %s", bytes.TrimSpace(p.body.Bytes()))
		}
		return p.header.Get("Content-Type"), p.body.Bytes(), nil
	}
}
