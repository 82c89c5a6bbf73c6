package usageplane

import (
	"context"
	"fmt"

	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage/limits"
)

// crossed makes a limit's crossing an event of the monitor plane: of the entity usage-TENANT, by the check usage-LIMIT.
func (p *Plane) crossed(ctx context.Context, c limits.Crossing) {
	to := plane.Find[plane.Monitor](p.d.Planes)
	if to == nil {
		return
	}
	status := uint32(1)
	if c.Threshold >= 1 {
		status = 2
	}
	text := fmt.Sprintf("%s of %s: %s of %s (%g %% of limit %s) since %s", c.Product, c.Tenant, c.Value, c.Of,
		c.Threshold*100, c.Limit, c.Window.From.UTC().Format("2006-01-02 15:04"))
	err := to.TellResult(ctx, "usage-"+plane.MonitorName(c.Tenant), "usage-"+plane.MonitorName(c.Limit), status, text,
		p.keys.Handlers)
	if err != nil {
		p.d.Log.Warn("usage: the crossing of a limit is in its history, and no event of the monitor", "limit", c.Limit,
			"error", err)
	}
}
