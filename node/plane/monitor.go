package plane

import (
	"context"
	"strings"
)

// Monitor is what other planes ask of the monitor plane, where the process has one (Find): that a result becomes an
// event.
type Monitor interface {
	TellResult(ctx context.Context, entity, check string, status uint32, output string, handlers []string) error
}

// MonitorName is a name as the monitor takes it.
func MonitorName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r) {
			return r
		}
		return '_'
	}, s)
}
