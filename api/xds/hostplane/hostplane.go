// Package hostplane lets a discovery service answer for the proxies of one host.
package hostplane

import (
	"context"
	"errors"
	"fmt"

	"corbel.dev/corbel/api/xds"
	"corbel.dev/corbel/mesh/host"
)

// Plane is the host as the discovery service sees it.
type Plane struct{ Host *host.Host }

// Open implements xds.Plane.
func (p Plane) Open(ctx context.Context, n xds.Node, token string) (xds.Proxy, error) {
	c := host.Claim{ID: n.ID, Node: n.Name}
	if n.HasVersion {
		c.Version = fmt.Sprintf("%d.%d.%d", n.Major, n.Minor, n.Patch)
	}
	s, err := p.Host.Open(ctx, c, token)
	if errors.Is(err, host.ErrNoToken) {
		return nil, fmt.Errorf("%w: %w", err, xds.ErrUnauthenticated)
	}
	if err != nil {
		return nil, err
	}
	return proxy{s}, nil
}

// proxy is an opened proxy.
type proxy struct{ *host.Stream }

// Applied implements xds.Proxy.
func (p proxy) Applied(r xds.Report) {
	p.Stream.Applied(host.Report{Type: r.Type, Resources: r.Resources, Removed: r.Removed, Refused: r.Refused,
		Sent: r.Sent, Answered: r.Answered})
}
