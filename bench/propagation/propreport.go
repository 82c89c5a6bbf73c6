package propagation

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"corbel.dev/corbel/bench/curve"
)

// WriteJSON writes the result as one indented JSON object.
func (p *Propagation) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(p)
}

// WriteText writes the result for people.
func (p *Propagation) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "bench propagation  %d servers, %d nodes, %d proxies of %d services\n%s  %s\n", p.Servers, p.Nodes,
		p.Proxies, p.Services,
		p.Machine, p.Date.Format(time.DateOnly))
	fmt.Fprintf(&b, "change: %s\n%s\n", p.How, p.faultLine())
	u, m := p.BringUp, p.BringUp.Memory
	fmt.Fprintf(&b, "bring-up: servers %.1f s, %d registrations %.1f s, agents %.1f s, proxies configured with "+
		"certificates %.1f s\n",
		u.ServersSeconds, u.Instances, u.RegisterSeconds, u.HostsSeconds, u.WarmSeconds)
	fmt.Fprintf(&b, "          CPU servers %.1f, agents %.1f, proxies %.1f s; %d streams and %d connections ended by "+
		"agents; feed: %.0f reconnects\n",
		u.CPU.Servers, u.CPU.Hosts, u.CPU.Sidecars, u.Ended, u.Lost, sum(u.Hosts, "feed.client.reconnects."))
	fmt.Fprintf(&b, "peak memory: servers %s, agents %.0f MiB (%.1f kB for each proxy), simulated proxies %.0f MiB\n",
		mib(m.ServerBytes), float64(m.HostsBytes)/(1<<20), float64(m.HostBytesPerProxy)/1000,
		float64(m.SidecarsBytes)/(1<<20))
	for i, r := range p.Rounds {
		fmt.Fprintf(&b, "  round %-3d", i+1)
		stats(&b, r.Stats)
		fmt.Fprintf(&b, "  (acknowledged %.1f ms; CPU servers %.2f, agents %.2f, proxies %.2f s; %d messages, %.1f MB)\n",
			r.HTTPMillis, r.CPU.Servers, r.CPU.Hosts, r.CPU.Sidecars, r.Messages, float64(r.Bytes)/1e6)
		for _, part := range []struct {
			what string
			of   *curve.Stats
		}{{"without fault", r.Unaffected}, {"with fault", r.Affected}} {
			if part.of != nil {
				fmt.Fprintf(&b, "    %-14s", part.what)
				stats(&b, *part.of)
				b.WriteByte('\n')
			}
		}
	}
	fmt.Fprintf(&b, "published: p50 361  p90 485  p95 535  p99 32000 ms on 5 x 36 processors\nreal Envoys: %s; %d "+
		"requests through them, none failed\n", p.Envoys, p.EnvoyRequests)
	if p.Floors != nil {
		b.WriteString(p.Floors.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func stats(b *strings.Builder, s curve.Stats) {
	fmt.Fprintf(b, " p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f ms  missing %d of %d", s.P50, s.P90, s.P99, s.P999,
		s.Max, s.Missing, s.Count)
}

func mib(list []int64) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, fmt.Sprintf("%.0f", float64(n)/(1<<20)))
	}
	return strings.Join(parts, " + ") + " MiB"
}

// sum adds the figures whose names begin so.
func sum(figures map[string]float64, prefix string) (total float64) {
	for name, v := range figures {
		if strings.HasPrefix(name, prefix) {
			total += v
		}
	}
	return total
}
