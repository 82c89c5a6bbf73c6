package usageagentplane

import (
	"errors"
	"time"

	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/usage/relay"
)

// Keys are how an agent buffers what its host sends. They are a part of the section of the usage plane.
type Keys struct {
	Buffer int           `key:"agent.buffer_bytes" def:"268435456" doc:"agents: events that wait on this host's disk until servers take them, in bytes; a full buffer refuses more. 0 takes none here"`
	Gather time.Duration `key:"agent.gather" def:"1s" doc:"agents: how long events wait for company before they go to a server"`
	IDs    int           `key:"agent.ids" def:"500000" doc:"agents: ids of events that are remembered against repeats; servers remember more"`
}

// section is what this plane reads of the usage plane's keys.
type section interface {
	UsageAgent() *Keys
	UsageOn() bool
	UsageStatsd() Statsd
}

// Statsd is the door for metrics.
type Statsd struct{ Address, Socket, Tenant string }

// keysOf are the keys in a configuration; nil where the process is not to count usage.
func keysOf(cfg *config.Config) section {
	if s, ok := cfg.Section("usage").(section); ok && s.UsageOn() {
		return s
	}
	return nil
}

// check names what is wrong with the keys.
func check(cfg *config.Config) error {
	s := keysOf(cfg)
	if s == nil {
		return nil
	}
	k := s.UsageAgent()
	var wrong []error
	if k.Buffer != 0 && k.Buffer < relay.LeastBytes {
		wrong = append(wrong, errors.New("usage.agent.buffer_bytes: must be 0, or at least 33554432"))
	}
	if k.Gather < time.Millisecond || k.Gather > time.Minute {
		wrong = append(wrong, errors.New("usage.agent.gather: must be from 1ms to 1m"))
	}
	if k.IDs < 1000 {
		wrong = append(wrong, errors.New("usage.agent.ids: must be at least 1000"))
	}
	return errors.Join(wrong...)
}
