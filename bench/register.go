package bench

import (
	"context"
	"fmt"
)

// RunRegister measures catalog registrations of distinct nodes, each with one
// distinct service and one check, at o.Connections.
func RunRegister(ctx context.Context, o Options) (*Result, error) {
	if o.Connections == 0 {
		o.Connections = 64
	}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	c, err := OpenTarget(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	r := NewResult("register", &o)
	o.Say("registering at %d connections for %s ...", o.Connections, o.Duration)
	load, err := RunLoad(ctx, LoadSpec{Addr: c.HTTP, Connections: o.Connections, Duration: o.Duration,
		Next: func(conn int, n int64) []byte {
			return Request("PUT", c.HTTP, "/v1/catalog/register", o.Token, registerBody(conn, n))
		}})
	if err != nil {
		return nil, err
	}
	row := load.Row(fmt.Sprintf("catalog register -c%d", o.Connections), FloorHTTP)
	row.RSSBytes = c.rssBytes()
	row.Note = "distinct nodes and services"
	r.Rows = append(r.Rows, row)
	return r, r.AddFloors(ctx, &o)
}

func registerBody(conn int, n int64) []byte {
	return fmt.Appendf(nil, `{"Node":"node-%d-%d","Address":"10.%d.%d.%d","Service":{"ID":"svc-%d-%d",`+
		`"Service":"svc-%d-%d",`+
		`"Port":8080,"Tags":["bench"]},"Check":{"CheckID":"service:svc-%d-%d","Name":"up","ServiceID":"svc-%d-%d",`+
		`"Status":"passing"}}`,
		conn, n, conn%256, n/256%256, n%256, conn, n, conn, n, conn, n, conn, n)
}

// instance renders a registration of one instance of a service, about 730
// bytes in a health answer, as agents make them: node, service and two checks.
func instance(service string, node, port int) []byte {
	return fmt.Appendf(nil, `{"Node":"host-%05d","Address":"10.%d.%d.%d","NodeMeta":{"rack":"r%02d"},`+
		`"Service":{"ID":"%s-%d","Service":"%s","Port":%d,"Tags":["v1","edge"],"Meta":{"version":"1.2.3"}},`+
		`"Checks":[{"CheckID":"service:%s-%d","Name":"Service '%s' check","ServiceID":"%s-%d","Status":"passing",`+
		`"Output":"HTTP GET: 200 OK"}]}`,
		node, node>>16&255, node>>8&255, node&255, node%40, service, node, service, port, service, node, service,
		service, node)
}

// fillService registers n instances of a service on nodes first..first+n-1.
func fillService(ctx context.Context, c *Target, service string, first, n int) error {
	_, err := RunCount(ctx, c.HTTP, 16, n, func(i int) []byte {
		return Request("PUT", c.HTTP, "/v1/catalog/register", c.Opts.Token, instance(service, first+i, 8080))
	})
	if err != nil {
		return fmt.Errorf("register %d instances of %s: %w", n, service, err)
	}
	return nil
}
