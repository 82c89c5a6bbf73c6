package usageplane

import (
	"errors"
	"fmt"
	"time"

	"corbel.dev/corbel/node/config"
	usagecacheplane "corbel.dev/corbel/node/planes/usagecache"
)

// Keys are the plane's section of the configuration.
type Keys struct {
	Enabled  bool   `key:"enabled" doc:"servers: count what tenants use; on in dev and under corbel server"`
	Timezone string `key:"timezone" def:"UTC" doc:"calendar of tenants that have none of their own"`
	Queue    int    `key:"queue_bytes" def:"67108864" doc:"events that wait to be stored, in bytes; a tenant gets a quarter"`
	Own      bool   `key:"own_planes" def:"true" doc:"count what Corbel's own planes do, as built-in products"`
	// Handlers are names of the monitor plane.
	Handlers []string `key:"limits.handlers" doc:"handlers of the monitor plane for limits that are crossed"`
	Log      LogKeys
	State    StateKeys
	Statsd   StatsdKeys
	usagecacheplane.Keys
}

// LogKeys are those of the log of events.
type LogKeys struct {
	MaxBytes int           `key:"log.max_bytes" def:"8589934592" doc:"the log of events on this server's disk"`
	Keep     time.Duration `key:"log.keep" def:"168h" doc:"how long events stay for explain, void and recount, room permitting"`
}

// StateKeys are those of what has been counted.
type StateKeys struct {
	IDs      int           `key:"state.ids" def:"10000000" doc:"ids of events that are remembered against duplicates; about 52 bytes each"`
	Hours    time.Duration `key:"state.keep_hours" def:"72h" doc:"how long hours are told apart, before they become days"`
	Days     time.Duration `key:"state.keep_days" def:"9600h" doc:"how long days are told apart"`
	Snapshot time.Duration `key:"state.snapshot" def:"1m" doc:"how often the state is saved: a start reads the log since then"`
}

// StatsdKeys are those of the door for metrics.
type StatsdKeys struct {
	Port    int    `key:"dogstatsd.port" def:"-1" doc:"UDP port for usage as dogstatsd or statsd metrics; -1 is off (8125 is its usual one)"`
	Address string `key:"dogstatsd.address" def:"127.0.0.1" doc:"where that port listens: whoever reaches it is believed"`
	Socket  string `key:"dogstatsd.socket" doc:"Unix datagram socket for the same; off when empty"`
	Tenant  string `key:"dogstatsd.tenant" doc:"the tenant of all that comes there; empty takes the tag tenant of each metric"`
}

// SetDefaults implements what config.Options.Sections asks for.
func (k *Keys) SetDefaults(style config.Style, _ bool) { k.Enabled = style == config.Corbel }

// keysOf are those of a configuration; one that was loaded without the section has the plane off.
func keysOf(cfg *config.Config) *Keys {
	if k, ok := cfg.Section(Name).(*Keys); ok {
		return k
	}
	return &Keys{}
}

func check(cfg *config.Config) error {
	k := keysOf(cfg)
	if !k.Enabled {
		return nil
	}
	var wrong []error
	if _, err := time.LoadLocation(k.Timezone); err != nil {
		wrong = append(wrong, fmt.Errorf("usage.timezone: %q is no time zone: use a name like Europe/Berlin", k.Timezone))
	}
	for _, bound := range []struct {
		key         string
		value, most int
	}{{"queue_bytes", k.Queue, 1 << 20}, {"log.max_bytes", k.Log.MaxBytes, 256 << 20}, {"state.ids", k.State.IDs, 1000}} {
		if bound.value < bound.most {
			wrong = append(wrong, fmt.Errorf("usage.%s: must be at least %d", bound.key, bound.most))
		}
	}
	if k.State.Snapshot < time.Second {
		wrong = append(wrong, errors.New("usage.state.snapshot: must be at least 1s"))
	}
	return errors.Join(wrong...)
}
