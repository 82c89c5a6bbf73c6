package node

import (
	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/node/config"
)

// dnsSettings is dns_config as the DNS server takes it.
func dnsSettings(cfg *config.Config) dnsapi.Settings {
	d := &cfg.DNS
	return dnsapi.Settings{
		Domain: d.Domain, AltDomain: d.AltDomain, RequireFresh: !d.AllowStale, MaxStale: d.MaxStale,
		NodeTTL: d.NodeTTL, ServiceTTL: d.ServiceTTL, OnlyPassing: d.OnlyPassing, OmitNodeMeta: !d.NodeMetaTXT,
		UseCache: d.UseCache, CacheMaxAge: d.CacheMaxAge, Limits: dnsapi.Limits{EnableTruncate: d.EnableTruncate,
			UDPAnswerLimit: d.UDPAnswerLimit, ARecordLimit: d.ARecordLimit, DisableCompression: d.DisableCompression},
		Recursion: dnsapi.Recursion{Recursors: d.Recursors, RecursorTimeout: d.RecursorTimeout,
			RecursorStrategy: d.RecursorStrategy},
		SOA: dnsapi.SOA{Refresh: uint32(d.SOARefresh), Retry: uint32(d.SOARetry), Expire: uint32(d.SOAExpire),
			MinTTL: uint32(d.SOAMinTTL)},
	}
}
