package outlet

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// resolveLoop keeps current up to date. A name that stops resolving keeps its last
// address: a name server that is down must not silence a sink that works.
func (o *Outlet) resolveLoop(ctx context.Context) {
	host, port, _ := net.SplitHostPort(o.cfg.Target.Address) // ParseTarget has seen that it splits
	portNumber, err := net.LookupPort(o.cfg.Target.Network, port)
	if err != nil {
		return
	}
	var wait time.Duration
	for {
		addresses, err := o.lookup(ctx, host)
		if err == nil && len(addresses) > 0 {
			o.settle(addresses, uint16(portNumber))
			wait = resolveEvery
		} else if wait = min(max(2*wait, time.Second), resolveEvery); ctx.Err() == nil {
			o.cfg.Logger.Debug("telemetry sink's name does not resolve", "sink", o.cfg.Sink, "host", host, "error", err)
		}
		if !o.pause(ctx, wait) {
			return
		}
	}
}

func (o *Outlet) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	return o.cfg.Resolver.LookupNetIP(ctx, "ip", host)
}

// settle keeps the address in use while the name still has it, else takes the first.
func (o *Outlet) settle(addresses []netip.Addr, port uint16) {
	texts := make([]string, 0, len(addresses))
	for _, a := range addresses {
		texts = append(texts, netip.AddrPortFrom(a.Unmap(), port).String())
	}
	if now := o.current.Load(); now == nil || !slices.Contains(texts, *now) {
		o.current.Store(&texts[0])
	}
}

// pause waits for wait to pass or for a kick, which comes at most once a second.
func (o *Outlet) pause(ctx context.Context, wait time.Duration) bool {
	least := o.cfg.Clock.NewTimer(min(wait, time.Second))
	defer least.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-least.C:
	}
	rest := o.cfg.Clock.NewTimer(wait - min(wait, time.Second))
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-rest.C:
	case <-o.kick:
	}
	return true
}
