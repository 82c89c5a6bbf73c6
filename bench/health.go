package bench

import (
	"context"
	"fmt"
)

// HealthOptions are the options of the health-query bench.
type HealthOptions struct {
	Options
	// Instances of the service: 120 make an answer of 88 kB.
	Instances int
}

// RunHealth measures /v1/health/service of one large service.
func RunHealth(ctx context.Context, o HealthOptions) (*Result, error) {
	if o.Instances == 0 {
		o.Instances = 120
	}
	if o.Connections == 0 {
		o.Connections = 64
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	c, err := openTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := fillService(ctx, c, watchedService, 1<<20, o.Instances); err != nil {
		return nil, err
	}
	conn, err := dialWire(ctx, c.http, 4096)
	if err != nil {
		return nil, err
	}
	raw := request("GET", c.http, "/v1/health/service/"+watchedService, o.Token, nil)
	one, err := conn.do(raw, false, ioDeadline)
	_ = conn.Close()
	if err != nil {
		return nil, err
	}
	r := newResult("health", &o.Options)
	o.say("asking at %d connections for %s ...", o.Connections, o.Duration)
	load, err := runLoad(ctx, loadSpec{addr: c.http, connections: o.Connections, duration: o.Duration,
		warmup: o.Duration / 10, next: func(int, int64) []byte { return raw }})
	if err != nil {
		return nil, err
	}
	row := load.row(fmt.Sprintf("health/service of %d instances -c%d", o.Instances, o.Connections), floorHTTP)
	row.Note = fmt.Sprintf("answer of %d bytes", one.length)
	row.RSSBytes = c.rssBytes()
	r.Rows = append(r.Rows, row)
	return r, r.addFloors(ctx, &o.Options)
}
