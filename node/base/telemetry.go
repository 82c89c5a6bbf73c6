package base

import (
	"time"

	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/telemetry"
)

// devRetention switches Prometheus on in dev.
const devRetention = time.Minute

// telemetrySettings is the telemetry stanza as the sinks take it.
func telemetrySettings(cfg *config.Config) telemetry.Settings {
	t := &cfg.Telemetry
	retention := t.PrometheusRetention
	if retention == 0 && cfg.Dev {
		retention = devRetention
	}
	return telemetry.Settings{
		StatsdAddress: t.StatsdAddress, StatsiteAddress: t.StatsiteAddress, DogstatsdAddr: t.DogstatsdAddress,
		DogstatsdTags: t.DogstatsdTags, PrometheusRetentionTime: retention, DisableHostname: t.DisableHostname,
		MetricsPrefix: t.Prefix, PrefixFilter: t.PrefixFilter, FilterDefault: &t.FilterDefault,
		EnableHostMetrics: t.EnableHostMetrics, RetryFailedConnection: &t.RetryFailed, OTLPEndpoint: t.OTLPEndpoint,
		OTLPTracesEndpoint: t.OTLPTracesEndpoint,
		DisableDoctor:      t.DisableDoctor,
	}
}
