//go:build !linux

package probe

import (
	"time"

	"corbel.dev/corbel/telemetry"
)

func (h *Host) sample(*telemetry.Registry, time.Time) []string {
	return []string{"host: CPU, network, quotas and descriptors are read on Linux alone"}
}
