// Package redirect sends a host's TCP traffic through the proxy of a service: what `connect redirect-traffic` does
// for transparent proxies.
//
// The rules are one nftables table of its own (ip corbel_redirect), replaced whole and at once: running the command
// again with other flags leaves nothing of the former rules, and no rule of anybody else is touched. Deleting the
// table ends the redirection. IPv4 alone: proxies listen there. Rules are pure text; only Apply touches the host.
package redirect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Table is the name of the table in nftables' family ip.
const Table = "corbel_redirect"

// Rules says what is redirected.
type Rules struct {
	// ProxyUID is the user of the proxy, whose own traffic is left alone: else it would come back to it for ever.
	ProxyUID uint32
	// InboundPort is the proxy's public listener; 0 leaves inbound traffic alone.
	InboundPort uint16
	// OutboundPort is the proxy's listener for what the host sends.
	OutboundPort uint16
	// What is left alone beside the proxy's traffic.
	ExcludeInboundPorts, ExcludeOutboundPorts []uint16
	ExcludeOutboundCIDRs                      []netip.Prefix
	ExcludeUIDs                               []uint32
	// DNS, when valid, answers what is asked at any port 53.
	DNS netip.AddrPort
}

// Script is the rules in nftables' language. The order of its lists is settled, so equal rules are equal text.
func (r *Rules) Script() (string, error) {
	switch {
	case r.OutboundPort == 0:
		return "", errors.New("the port of the proxy's outbound listener is missing")
	case r.DNS.IsValid() && !r.DNS.Addr().Is4():
		return "", fmt.Errorf("the address of the DNS server must be IPv4, not %s", r.DNS.Addr())
	}
	var b strings.Builder
	// a table must exist to be deleted
	fmt.Fprintf(&b, "table ip %s {}\ndelete table ip %s\ntable ip %s {\n", Table, Table, Table)
	b.WriteString("\tchain outbound {\n\t\ttype nat hook output priority -100; policy accept;\n")
	fmt.Fprintf(&b, "\t\tmeta skuid %s return\n", set(append([]uint32{r.ProxyUID}, r.ExcludeUIDs...)))
	if r.DNS.IsValid() {
		fmt.Fprintf(&b, "\t\tmeta l4proto { tcp, udp } th dport 53 dnat to %s\n", r.DNS)
	}
	b.WriteString("\t\tip daddr 127.0.0.0/8 return\n")
	if len(r.ExcludeOutboundPorts) > 0 {
		fmt.Fprintf(&b, "\t\ttcp dport %s return\n", set(r.ExcludeOutboundPorts))
	}
	var nets []string
	for _, p := range r.ExcludeOutboundCIDRs {
		if !p.Addr().Is4() {
			continue // IPv6 is left alone as it is
		}
		nets = append(nets, p.Masked().String())
	}
	// a rule each: networks in a set may not overlap
	for _, n := range slices.Compact(slices.Sorted(slices.Values(nets))) {
		fmt.Fprintf(&b, "\t\tip daddr %s return\n", n)
	}
	fmt.Fprintf(&b, "\t\tmeta l4proto tcp redirect to :%d\n\t}\n", r.OutboundPort)
	if r.InboundPort != 0 {
		b.WriteString("\tchain inbound {\n\t\ttype nat hook prerouting priority -100; policy accept;\n")
		if len(r.ExcludeInboundPorts) > 0 {
			fmt.Fprintf(&b, "\t\ttcp dport %s return\n", set(r.ExcludeInboundPorts))
		}
		fmt.Fprintf(&b, "\t\tmeta l4proto tcp redirect to :%d\n\t}\n", r.InboundPort)
	}
	b.WriteString("}\n")
	return b.String(), nil
}

// set is numbers as nftables has them.
func set[N uint16 | uint32](list []N) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.FormatUint(uint64(n), 10)
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

// applyTimeout bounds nft.
const applyTimeout = 30 * time.Second

// Apply hands the script to nft, in the network namespace at path (such as /var/run/netns/web) if that is not empty.
// It needs root, and replaces all or nothing.
func Apply(ctx context.Context, script, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	args := []string{"nft", "-f", "-"}
	if namespace != "" {
		args = append([]string{"nsenter", "--net=" + namespace}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w; install nftables (and util-linux for --netns), or print the rules with --print", err)
	case err != nil:
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
