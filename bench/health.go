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
	if err := o.Complete(); err != nil {
		return nil, err
	}
	c, err := OpenTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	if err := fillService(ctx, c, watchedService, 1<<20, o.Instances); err != nil {
		return nil, err
	}
	conn, err := DialWire(ctx, c.HTTP, 4096)
	if err != nil {
		return nil, err
	}
	raw := Request("GET", c.HTTP, "/v1/health/service/"+watchedService, o.Token, nil)
	one, err := conn.Do(raw, false, IoDeadline)
	_ = conn.Close()
	if err != nil {
		return nil, err
	}
	r := NewResult("health", &o.Options)
	o.Say("asking at %d connections for %s ...", o.Connections, o.Duration)
	load, err := RunLoad(ctx, LoadSpec{Addr: c.HTTP, Connections: o.Connections, Duration: o.Duration,
		Warmup: o.Duration / 10, Next: func(int, int64) []byte { return raw }})
	if err != nil {
		return nil, err
	}
	row := load.Row(fmt.Sprintf("health/service of %d instances -c%d", o.Instances, o.Connections), FloorHTTP)
	row.Note = fmt.Sprintf("answer of %d bytes", one.length)
	row.RSSBytes = c.rssBytes()
	r.Rows = append(r.Rows, row)
	return r, r.AddFloors(ctx, &o.Options)
}
