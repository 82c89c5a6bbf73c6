package envoy

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// Redirect is the listener that a host's traffic is redirected to.
type Redirect struct {
	Port int
	Ways []Way
	// Elsewhere lets what is for none of them go on to where it went.
	Elsewhere bool
	Logs      *entry.AccessLogs
}

// Way is an upstream, and the addresses by which callers mean it.
type Way struct {
	Addresses []string
	Out       *Outbound // without an address of its own
}

// RedirectListener is the listener that a host's traffic is redirected to: where a connection went decides where it
// goes on. There must be a way, or Elsewhere.
func RedirectListener(v *Redirect) (*mesh.Resource, error) {
	bind := Bind{Address: "127.0.0.1", Port: v.Port}
	name := bind.name("outbound_listener")
	var p packer
	address, err := bindAddress("outbound_listener", bind.Address, "TransparentProxy.OutboundListenerPort",
		bind.Port, "", 0)
	if err != nil {
		return nil, named(mesh.TypeListener, name, err)
	}
	m := &listenerv3.Listener{Name: name, Address: address, TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		AccessLog: p.listenerLogs(v.Logs),
		ListenerFilters: []*listenerv3.ListenerFilter{{Name: "envoy.filters.listener.original_dst",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: p.any(&originaldstv3.OriginalDst{})}}}}
	taken := map[string]bool{}
	for i := range v.Ways {
		match := &listenerv3.FilterChainMatch{}
		for _, text := range v.Ways[i].Addresses {
			addr, err := netip.ParseAddr(text)
			if err != nil || taken[text] {
				return nil, named(mesh.TypeListener, name,
					errkind.Errorf(errkind.Invalid, "the virtual address %q is of two upstreams, or none", text))
			}
			taken[text] = true
			match.PrefixRanges = append(match.PrefixRanges,
				&corev3.CidrRange{AddressPrefix: text, PrefixLen: u32(uint32(addr.BitLen()))})
		}
		m.FilterChains = append(m.FilterChains, &listenerv3.FilterChain{FilterChainMatch: match,
			Filters: []*listenerv3.Filter{p.outboundFilter(v.Ways[i].Out)}})
	}
	if v.Elsewhere {
		m.DefaultFilterChain = &listenerv3.FilterChain{Filters: []*listenerv3.Filter{p.tcpProxy("upstream."+
			OriginalDestination, OriginalDestination, v.Logs, 0)}}
	}
	return p.encode(mesh.TypeListener, name, m)
}

// outboundFilter sends connections or requests to an upstream.
func (p *packer) outboundFilter(v *Outbound) *listenerv3.Filter {
	if entry.IsHTTP(v.Protocol) {
		return p.upstreamHTTP(v)
	}
	if v.Protocol == Redis {
		return p.redisProxy(v)
	}
	return p.tcpProxy(v.Stat, v.Cluster, v.Logs, 0)
}
