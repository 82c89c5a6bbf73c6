package usageplane

import (
	"context"
	"fmt"
	"strings"

	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage/limits"
)

// monitorPlane is what is needed of the monitor plane, where the process has one.
type monitorPlane interface {
	TellResult(ctx context.Context, entity, check string, status uint32, output string, handlers []string) error
}

// crossed makes a limit's crossing an event of the monitor plane: of the entity usage-TENANT, by the check usage-LIMIT.
func (p *Plane) crossed(ctx context.Context, c limits.Crossing) {
	to := plane.Find[monitorPlane](p.d.Planes)
	if to == nil {
		return
	}
	status := uint32(1)
	if c.Threshold >= 1 {
		status = 2
	}
	text := fmt.Sprintf("%s of %s: %s of %s (%g %% of limit %s) since %s", c.Product, c.Tenant, c.Value, c.Of,
		c.Threshold*100, c.Limit, c.Window.From.UTC().Format("2006-01-02 15:04"))
	err := to.TellResult(ctx, "usage-"+monitorName(c.Tenant), "usage-"+monitorName(c.Limit), status, text,
		p.keys.Handlers)
	if err != nil {
		p.d.Log.Warn("usage: the crossing of a limit is in its history, and no event of the monitor", "limit", c.Limit,
			"error", err)
	}
}

// monitorName is a name as the monitor takes it.
func monitorName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r) {
			return r
		}
		return '_'
	}, s)
}
