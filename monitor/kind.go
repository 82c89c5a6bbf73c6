package monitor

import (
	"github.com/cespare/xxhash/v2"

	"corbel.dev/corbel/kit/tagproto"
)

// Kind is a check's configuration as results tell of it, decoded once for all results that
// have it. It is never changed.
type Kind struct {
	Stable []byte // as Frame has it
	Sum    uint64 // xxHash of Stable: servers tell each other by it which configuration they mean
	Check  *Check // decoded
	Thresholds
	Lifetime Lifetime
	// Handled is false where no handler or pipeline of the check's own can ever want its events.
	Handled bool
	Catalog Binding
}

// NewKind decodes what is stable of a check. It keeps stable.
func NewKind(stable []byte) (*Kind, error) {
	c := new(Check)
	if err := tagproto.Unmarshal(stable, c); err != nil {
		return nil, err
	}
	return &Kind{
		Stable: stable, Sum: xxhash.Sum64(stable), Check: c, Thresholds: Thresholds{c.LowFlapThreshold, c.HighFlapThreshold},
		Lifetime: LifetimeOf(c),
		Catalog:  bindingOf(c),
		Handled:  c.Name == KeepaliveCheck || len(c.Handlers)+len(c.Pipelines)+len(c.MetricHandlers) > 0,
	}, nil
}
