package monitorplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"corbel.dev/corbel/api/promapi"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor/agent"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/monitor/script"
	"corbel.dev/corbel/node/agentconf"
	"corbel.dev/corbel/node/logs"
	"corbel.dev/corbel/telemetry"
)

// SensuAgent is an agent of the monitor plane alone, as sensu-agent runs it.
type SensuAgent struct {
	logs    *logs.Logs
	metrics *telemetry.Registry
	agent   *agent.Agent
	scripts *script.Engine
}

// NewSensuAgent makes it and opens its API's port; log lines go to out.
func NewSensuAgent(cfg *agentconf.Config, out io.Writer) (*SensuAgent, error) {
	level, _ := logs.ParseLevel(cfg.LogLevel) // agentconf gives levels of ours
	a := &SensuAgent{logs: logs.New(out, level, false), scripts: script.New(script.Config{Command: cfg.ScriptCommand})}
	log := a.logs.Logger()
	a.metrics = telemetry.New(telemetry.Config{Settings: telemetry.Settings{MetricsPrefix: "sensu_go",
		PrometheusRetentionTime: 24 * time.Hour, DisableHostname: true}, Clock: clock.Real{}, Logger: log})
	c := cfg.Agent
	c.FS, c.Log, c.Metrics, c.Version, c.MetricsHandler = vfs.OS{}, log, a.metrics, version.SensuContract,
		prometheusText(a.metrics)
	for _, w := range cfg.Warnings {
		log.Warn(w)
	}
	var err error
	if c.Assets, err = newAssets(&c, a.scripts, cfg.AssetsRate, cfg.AssetsBurst); err != nil {
		return nil, err
	}
	a.agent, err = agent.New(c)
	return a, err
}

// newAssets makes what fetches an agent's assets; nil where they are off.
func newAssets(c *agent.Config, scripts *script.Engine, rate float64, burst int) (*asset.Fetcher, error) {
	if c.DisableAssets || c.CacheDir == "" {
		return nil, nil
	}
	f, err := asset.New(asset.Config{Dir: filepath.Join(c.CacheDir, "assets"), Scripts: scripts, Log: c.Log,
		PerSecond: rate, Burst: burst})
	if err != nil {
		return nil, fmt.Errorf("cache-dir: %w", err)
	}
	return f, nil
}

// prometheusText answers with Prometheus' text always.
func prometheusText(r *telemetry.Registry) http.Handler {
	text := promapi.New(r)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Clone(r.Context())
		q := asked.URL.Query()
		if !q.Has("format") {
			q.Set("format", "prometheus")
		}
		asked.URL.RawQuery = q.Encode()
		text.ServeHTTP(w, asked)
	})
}

// APIAddr is where its HTTP API listens; nil is nowhere.
func (a *SensuAgent) APIAddr() net.Addr { return a.agent.APIAddr() }

// Run runs the agent until ctx ends.
func (a *SensuAgent) Run(ctx context.Context) error {
	var g life.Group
	g.Add("logs", a.logs.Run)
	g.Add("telemetry", a.metrics.Run)
	g.Add("scripts", a.scripts.Run)
	g.Add("agent", a.agent.Run)
	err := g.Run(ctx)
	a.logs.Flush()
	return err
}
