package meshcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/user"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/redirect"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// redirectOptions are the flags of `connect redirect-traffic`.
type redirectOptions struct {
	proxyID, proxyUID, netns, dnsIP                 string
	inbound, outbound, dnsPort                      uint16
	notUIDs, notInbound, notOutbound, notOutboundTo []string
	print                                           bool
}

// defaultOutbound is the port of a transparent proxy's outbound listener unless its registration names another.
const defaultOutbound = 15001

// redirectTraffic sends a host's traffic through its proxy.
func redirectTraffic(e *command.Env) *cobra.Command {
	var o redirectOptions
	c := command.Act(e, "redirect-traffic", "Send a host's TCP traffic through its proxy (nftables, root)",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, _ []string) error {
			rules, err := o.rules(ctx, cl)
			if err != nil {
				return err
			}
			script, err := rules.Script()
			if err != nil {
				return err
			}
			if o.print {
				return e.Printf("%s", script)
			}
			if err := redirect.Apply(ctx, script, o.netns); err != nil {
				return err
			}
			return e.Printf("Successfully applied traffic redirection rules; `nft delete table ip %s` ends them\n",
				redirect.Table)
		})
	f := c.Flags()
	f.StringVar(&o.proxyID, "proxy-id", "",
		"id of the proxy's service on this agent: its ports are taken from there, and what it exposes is left alone")
	f.StringVar(&o.proxyUID, "proxy-uid", "", "user of the proxy, by number or name, whose own traffic is not redirected")
	f.Uint16Var(&o.inbound, "proxy-inbound-port", 0, "port of the proxy's public listener; needed without --proxy-id")
	f.Uint16Var(&o.outbound, "proxy-outbound-port", 0, "port of the proxy's outbound listener (default "+
		strconv.Itoa(defaultOutbound)+")")
	f.StringArrayVar(&o.notInbound, "exclude-inbound-port", nil, "inbound port to reach without the proxy (repeat)")
	f.StringArrayVar(&o.notOutbound, "exclude-outbound-port", nil,
		"port of other hosts that is reached without the proxy (repeat)")
	f.StringArrayVar(&o.notOutboundTo, "exclude-outbound-cidr", nil, "network to reach without the proxy (repeat)")
	f.StringArrayVar(&o.notUIDs, "exclude-uid", nil, "another user whose traffic is not redirected (repeat)")
	f.StringVar(&o.dnsIP, "consul-dns-ip", "", "IPv4 address that answers all DNS questions")
	f.Uint16Var(&o.dnsPort, "consul-dns-port", 0, "its port (default 53; 8600 of 127.0.0.1 if the address is left out)")
	f.StringVar(&o.netns, "netns", "", "path of the network namespace to use, such as /var/run/netns/web")
	f.BoolVar(&o.print, "print", false, "print the rules instead")
	return c
}

// rules is what flags and registration ask for.
func (o *redirectOptions) rules(ctx context.Context, cl *client.Client) (r redirect.Rules, err error) {
	if o.proxyUID == "" {
		return r, command.Usagef("--proxy-uid is needed: without it the proxy's own traffic would come back to it")
	}
	if o.proxyID == "" && o.inbound == 0 {
		return r, command.Usagef("give --proxy-id or --proxy-inbound-port")
	}
	r.InboundPort, r.OutboundPort = o.inbound, o.outbound
	if r.ProxyUID, err = userID(o.proxyUID); err != nil {
		return r, command.Usagef("--proxy-uid %q: %v", o.proxyUID, err)
	}
	if r.ExcludeUIDs, err = parsed("exclude-uid", o.notUIDs, userID); err != nil {
		return r, err
	}
	if r.ExcludeInboundPorts, err = parsed("exclude-inbound-port", o.notInbound, port); err != nil {
		return r, err
	}
	if r.ExcludeOutboundPorts, err = parsed("exclude-outbound-port", o.notOutbound, port); err != nil {
		return r, err
	}
	if r.ExcludeOutboundCIDRs, err = parsed("exclude-outbound-cidr", o.notOutboundTo, netip.ParsePrefix); err != nil {
		return r, err
	}
	if o.dnsIP != "" || o.dnsPort != 0 {
		def := uint16(53)
		if o.dnsIP == "" {
			def = 8600
		}
		ip, err := netip.ParseAddr(cmp.Or(o.dnsIP, "127.0.0.1"))
		if err != nil || !ip.Is4() {
			return r, command.Usagef("--consul-dns-ip %q must be an IPv4 address", o.dnsIP)
		}
		r.DNS = netip.AddrPortFrom(ip, cmp.Or(o.dnsPort, def))
	}
	if o.proxyID != "" {
		if err := o.registered(ctx, cl, &r); err != nil {
			return r, err
		}
	}
	r.OutboundPort = cmp.Or(r.OutboundPort, defaultOutbound)
	return r, nil
}

// registered adds what the proxy's registration says.
func (o *redirectOptions) registered(ctx context.Context, cl *client.Client, r *redirect.Rules) error {
	var s struct {
		Kind  string
		Port  uint16
		Proxy struct {
			TransparentProxy struct{ OutboundListenerPort uint16 }
			DestinationID    string `json:"DestinationServiceID"`
			Expose           struct {
				Paths []struct{ ListenerPort uint16 }
			}
			Config struct {
				BindPort   uint16 `json:"bind_port"`
				Prometheus string `json:"envoy_prometheus_bind_addr"`
				Stats      string `json:"envoy_stats_bind_addr"`
			}
		}
	}
	if _, err := cl.Get(ctx, "/v1/agent/service/"+client.Escape(o.proxyID), client.Query{}, &s); err != nil {
		return fmt.Errorf("the proxy %s: %w; is it registered on this agent?", o.proxyID, err)
	}
	if s.Kind != "connect-proxy" {
		return fmt.Errorf("the service %s is no proxy: its kind is %q, not connect-proxy", o.proxyID, s.Kind)
	}
	r.InboundPort = cmp.Or(r.InboundPort, s.Proxy.Config.BindPort, s.Port)
	r.OutboundPort = cmp.Or(r.OutboundPort, s.Proxy.TransparentProxy.OutboundListenerPort)
	for _, addr := range []string{s.Proxy.Config.Prometheus, s.Proxy.Config.Stats} {
		if addr == "" {
			continue
		}
		_, p, err := hostPort(addr)
		if err != nil {
			return fmt.Errorf("the proxy %s: its bind address %q: %w", o.proxyID, addr, err)
		}
		r.ExcludeInboundPorts = append(r.ExcludeInboundPorts, uint16(p))
	}
	for _, path := range s.Proxy.Expose.Paths {
		r.ExcludeInboundPorts = append(r.ExcludeInboundPorts, path.ListenerPort)
	}
	return exposedChecks(ctx, cl, s.Proxy.DestinationID, r)
}

// exposedChecks adds the ports by which the agent's checks of a service go through its proxy.
func exposedChecks(ctx context.Context, cl *client.Client, service string, r *redirect.Rules) error {
	if service == "" {
		return nil
	}
	var all map[string]struct {
		ServiceID   string
		ExposedPort uint16
	}
	if _, err := cl.Get(ctx, "/v1/agent/checks", client.Query{}, &all); err != nil {
		return fmt.Errorf("the checks of %s: %w", service, err)
	}
	for _, id := range command.SortedKeys(all) {
		if c := all[id]; c.ServiceID == service && c.ExposedPort > 0 {
			r.ExcludeInboundPorts = append(r.ExcludeInboundPorts, c.ExposedPort)
		}
	}
	return nil
}

// parsed reads each value of a flag; a wrong one is named.
func parsed[T any](flag string, texts []string, parse func(string) (T, error)) ([]T, error) {
	var out []T
	for _, text := range texts {
		v, err := parse(text)
		if err != nil {
			return nil, command.Usagef("--%s %q: %v", flag, text, err)
		}
		out = append(out, v)
	}
	return out, nil
}

func port(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n == 0 {
		err = errors.New("there is no port 0")
	}
	return uint16(n), err
}

// userID is a user's number, by number or by name.
func userID(text string) (uint32, error) {
	if strings.Trim(text, "0123456789") != "" {
		u, err := user.Lookup(text)
		if err != nil {
			return 0, err
		}
		text = u.Uid
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}
