// Package trouble holds `troubleshoot`: what an operator asks when two services do
// not reach each other. It reads Envoy's own interface and opens connections; it
// changes nothing.
package trouble

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// askTime bounds each question.
const askTime = 5 * time.Second

// Command builds `troubleshoot`.
func Command(e *command.Env, c *cobra.Command) {
	command.Group(c, ports(e), upstreams(e), proxy(e))
}

// wellKnown are the ports that servers listen at, in Consul's numbers.
const wellKnown = "8600,8500,8501,8502,8503,8301,8302,8300"

func ports(e *command.Env) *cobra.Command {
	var host, list string
	c := &cobra.Command{Use: "ports", Short: "Check which TCP ports of a server this host can reach",
		Args: command.Between(0, 0, "flags only")}
	c.Flags().StringVar(&host, "host", "", "the server (default that of CONSUL_HTTP_ADDR, or localhost)")
	c.Flags().StringVar(&list, "ports", wellKnown, "ports, with commas between")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if host == "" {
			addr := cmp.Or(e.Getenv("CORBEL_HTTP_ADDR"), e.Getenv("CONSUL_HTTP_ADDR"), "localhost")
			_, rest, found := strings.Cut(addr, "://")
			if !found {
				rest = addr
			}
			host, _, _ = strings.Cut(rest, ":")
		}
		closed := 0
		for port := range strings.SplitSeq(list, ",") {
			d := net.Dialer{Timeout: askTime}
			conn, err := d.DialContext(c.Context(), "tcp", net.JoinHostPort(host, strings.TrimSpace(port)))
			state := "open"
			if err != nil {
				closed++
				state = "closed, unreachable, or timed out"
			} else {
				conn.Close()
			}
			e.Say("TCP: Port %s on %s is %s\n", strings.TrimSpace(port), host, state)
		}
		if closed > 0 && closed == strings.Count(list, ",")+1 {
			return fmt.Errorf("none of these ports of %s answers: is the host up, and does a firewall stand between?", host)
		}
		return nil
	}
	return c
}

// admin asks Envoy's interface.
type admin struct{ base string }

func (a admin) get(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("Envoy does not answer: %w; does it run here, and is this its -admin-bind? name another with "+
			"-envoy-admin-endpoint", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("Envoy answers %s to %s: %.200s", resp.Status, path, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("Envoy's answer to %s is not what was asked for: %w", path, err)
	}
	return nil
}

func adminFlag(c *cobra.Command, addr *string) {
	c.Flags().StringVar(addr, "envoy-admin-endpoint", "127.0.0.1:19000", "host:port of Envoy's own interface")
}

// listeners are Envoy's listeners by name.
type listeners struct {
	Statuses []struct{ Name string } `json:"listener_statuses"`
}

// upstreamOf splits a listener's name "db:127.0.0.1:9191".
func upstreamOf(name string) (id, addr string, ok bool) {
	id, addr, ok = strings.Cut(name, ":")
	return id, addr, ok && id != "public_listener" && id != "outbound_listener" && !strings.HasPrefix(id, "envoy_")
}

func upstreams(e *command.Env) *cobra.Command {
	var addr string
	c := &cobra.Command{Use: "upstreams", Short: "List the upstreams that a proxy was given",
		Args: command.Between(0, 0, "flags only")}
	adminFlag(c, &addr)
	c.RunE = func(c *cobra.Command, _ []string) error {
		var all listeners
		if err := (admin{"http://" + addr}).get(c.Context(), "/listeners?format=json", &all); err != nil {
			return err
		}
		e.Say("==> Upstreams (explicit upstreams only)\n")
		found := 0
		for _, l := range all.Statuses {
			if id, at, ok := upstreamOf(l.Name); ok {
				found++
				e.Say("   - %s (%s)\n", id, at)
			}
		}
		if found == 0 {
			return e.Printf("   none: register upstreams with the sidecar, or wait until the proxy has its configuration\n")
		}
		return nil
	}
	return c
}

// verdict is one line of `troubleshoot proxy`.
type verdict struct {
	good bool
	text string
}

func proxy(e *command.Env) *cobra.Command {
	var addr, upstream, ip string
	c := &cobra.Command{Use: "proxy", Short: "Check a proxy: certificates, rejected configuration, the upstream's " +
		"endpoints", Args: command.Between(0, 0, "flags only")}
	adminFlag(c, &addr)
	c.Flags().StringVar(&upstream, "upstream-envoy-id", "", "the upstream, as shown by `troubleshoot upstreams`")
	c.Flags().StringVar(&ip, "upstream-ip", "", "virtual addresses are not kept: use --upstream-envoy-id")
	_ = c.Flags().MarkHidden("upstream-ip") // fails for an unknown flag only
	c.RunE = func(c *cobra.Command, _ []string) error {
		if upstream == "" {
			return command.Usagef("give the upstream with --upstream-envoy-id; see `troubleshoot upstreams`")
		}
		a := admin{"http://" + addr}
		var all []verdict
		for _, judge := range []func(context.Context, admin) ([]verdict, error){certificates, rejections,
			func(ctx context.Context, a admin) ([]verdict, error) { return endpoints(ctx, a, upstream) }} {
			list, err := judge(c.Context(), a)
			if err != nil {
				return err
			}
			all = append(all, list...)
		}
		e.Say("==> Validation\n")
		bad := false
		for _, v := range all {
			mark := map[bool]string{true: "✓", false: "!"}[v.good]
			bad = bad || !v.good
			e.Say(" %s %s\n", mark, v.text)
		}
		if bad {
			return command.ExitCode(1)
		}
		return nil
	}
	return c
}

func certificates(ctx context.Context, a admin) ([]verdict, error) {
	type cert struct {
		Expires string `json:"expiration_time"`
	}
	var out struct {
		Certificates []struct {
			CA    []cert `json:"ca_cert"`
			Chain []cert `json:"cert_chain"`
		}
	}
	if err := a.get(ctx, "/certs", &out); err != nil {
		return nil, err
	}
	for _, set := range out.Certificates {
		for _, one := range append(set.CA, set.Chain...) {
			if at, err := time.Parse(time.RFC3339, one.Expires); err == nil && time.Now().After(at) {
				return []verdict{{false, "A certificate ended at " + one.Expires +
					": is the agent's gRPC port reachable, and its clock right?"}}, nil
			}
		}
	}
	if len(out.Certificates) == 0 {
		return []verdict{{false, "The proxy has no certificates: has it got its configuration? see its log and the agent's"}},
			nil
	}
	return []verdict{{true, "Certificates are valid"}}, nil
}

// stats are figures of Envoy as its interface gives them in JSON.
type stats struct {
	Stats []struct {
		Name  string
		Value float64
	}
}

func rejections(ctx context.Context, a admin) ([]verdict, error) {
	var out stats
	if err := a.get(ctx, "/stats?format=json&filter=update_rejected", &out); err != nil {
		return nil, err
	}
	var total float64
	for _, s := range out.Stats {
		total += s.Value
	}
	if total > 0 {
		return []verdict{{false, fmt.Sprintf("Envoy has refused %.0f configurations: see its log for the reason", total)}},
			nil
	}
	return []verdict{{true, "Envoy has refused 0 configurations"}}, nil
}

// endpoints judges the clusters whose names begin with the upstream's service.
func endpoints(ctx context.Context, a admin, upstream string) ([]verdict, error) {
	var out struct {
		Statuses []struct {
			Name  string
			Hosts []struct {
				Health struct {
					EDS string `json:"eds_health_status"`
				} `json:"health_status"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := a.get(ctx, "/clusters?format=json", &out); err != nil {
		return nil, err
	}
	var all []verdict
	for _, c := range out.Statuses {
		if !strings.HasPrefix(c.Name, upstream+".") {
			continue
		}
		healthy := 0
		for _, h := range c.Hosts {
			if h.Health.EDS == "" || h.Health.EDS == "HEALTHY" {
				healthy++
			}
		}
		text := fmt.Sprintf("%d of %d endpoints of cluster %s are healthy", healthy, len(c.Hosts), c.Name)
		if healthy == 0 {
			text += ": look at the service's checks and at the intentions"
		}
		all = append(all, verdict{healthy > 0, text})
	}
	if all == nil {
		all = append(all, verdict{false, "No cluster for the upstream " + upstream +
			": is it among the proxy's upstreams, and the service registered?"})
	}
	return all, nil
}
