// Package meshruns has the scenarios of the mesh: proxies that refuse, are slow, and come again.
package meshruns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// fleet is a cluster with simulated proxies on its servers' own ports: all stand for "app" and have the upstream "api".
type fleet struct {
	*faultrun.Cluster
	proxies []*adsProxy
	conns   []*adsConn
}

// meshHCL lets the totals be read.
const meshHCL = `telemetry { prometheus_retention_time = "60s" }
limits { txn_max_req_len = 8388608 }`

// openFleet starts servers, registers the instances of the upstream and the proxies, and configures them: each
// connection has up to perConn.
func openFleet(ctx context.Context, l *faultrun.Lab, servers, proxies, perConn, instances int) (*fleet, error) {
	c, err := l.Open(ctx, harness.Config{Servers: servers, Mesh: true, HCL: []string{meshHCL}})
	if err != nil {
		return nil, err
	}
	f := &fleet{Cluster: c}
	if err := f.fill(ctx, proxies, instances); err != nil {
		f.Close()
		return nil, err
	}
	for i := 0; i < proxies; i += perConn {
		conn := &adsConn{addr: c.Servers[len(f.conns)%servers].GRPC, proxies: f.proxies[i:min(i+perConn, proxies)]}
		conn.start(ctx)
		f.conns = append(f.conns, conn)
	}
	if err := f.everyone(ctx, "to be configured", func(p *adsProxy) bool {
		return len(p.have[adsListener]) > 0 && len(p.have[adsEndpoint]) > 0
	}); err != nil {
		err = fmt.Errorf("%w\n%s", err, f.Logs())
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close ends the streams and the cluster.
func (f *fleet) Close() {
	for _, c := range f.conns {
		c.stop()
	}
	f.Cluster.Close()
}

func (f *fleet) put(ctx context.Context, path string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return spawn.Until(ctx, 30*time.Second, "PUT "+path, func() error {
		if r := f.Admin.Do(ctx, "PUT", path, b); r.Status != 200 {
			return errors.New(r.String())
		}
		return nil
	})
}

type object = map[string]any

func (f *fleet) fill(ctx context.Context, proxies, instances int) error {
	if err := f.put(ctx, "/v1/config", object{"Kind": "service-defaults", "Name": "app", "Protocol": "http"}); err != nil {
		return err
	}
	var batch []object
	for i := range instances {
		batch = append(batch, object{"Node": "up", "Address": "127.0.0.1", "Service": object{"ID": fmt.Sprint("api-", i),
			"Service": "api-proxy", "Kind": "connect-proxy",
			"Address": fmt.Sprintf("10.1.%d.%d", i/256, i%256), "Port": 1000, "Proxy": object{"DestinationServiceName": "api"}}})
	}
	for i := range proxies {
		p := newAdsProxy("host", fmt.Sprint("app-", i))
		f.proxies = append(f.proxies, p)
		batch = append(batch, object{"Node": p.node, "Address": "127.0.0.1",
			"Service": object{"ID": p.id, "Service": "app-proxy", "Kind": "connect-proxy", "Address": "10.2.0.1",
				"Port": 1000 + i,
				"Proxy": object{"DestinationServiceName": "app", "LocalServicePort": 2000,
					"Upstreams": []object{{"DestinationName": "api", "LocalBindPort": 9000}}}}})
	}
	for len(batch) > 0 {
		n := min(200, len(batch))
		if err := f.put(ctx, "/v1/catalog/register-batch", batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// meshMark is in the address of one instance of the upstream, and grows.
const meshMark = "10.9."

// mark writes the next one.
func (f *fleet) mark(ctx context.Context, n int) error {
	return f.put(ctx, "/v1/catalog/register", object{"Node": "up", "Address": "127.0.0.1",
		"Service": object{"ID": "mark", "Service": "api-proxy", "Kind": "connect-proxy",
			"Address": fmt.Sprintf("%s%d.%d", meshMark, n/250, n%250), "Port": 1000,
			"Proxy": object{"DestinationServiceName": "api"}}})
}

// markOf is the mark in a response of endpoints, 0 for none.
func markOf(r *adsResponse) int {
	for _, one := range r.Resources {
		if at := bytes.Index(one.Body, []byte(meshMark)); r.Type == adsEndpoint && at >= 0 {
			var high, low int
			if n, _ := fmt.Sscanf(string(one.Body[at+len(meshMark):min(len(one.Body), at+len(meshMark)+7)]), "%d.%d", &high,
				&low); n == 2 {
				return 250*high + low
			}
		}
	}
	return 0
}

// everyone waits until the condition holds for each proxy of a connection that lives.
func (f *fleet) everyone(ctx context.Context, what string, holds func(*adsProxy) bool) error {
	return spawn.Until(ctx, 60*time.Second, "every proxy "+what, func() error {
		for _, c := range f.conns {
			c.mu.Lock()
			for _, p := range c.proxies {
				if !holds(p) {
					err := fmt.Errorf("%s does not: has %d clusters, %d endpoints, %d listeners, mark %d; ended %q", p.id,
						len(p.have[adsCluster]), len(p.have[adsEndpoint]), len(p.have[adsListener]), p.mark, p.ended)
					c.mu.Unlock()
					return err
				}
			}
			c.mu.Unlock()
		}
		return nil
	})
}

// judge has all connections judge responses.
func (f *fleet) judge(by func(*adsProxy, *adsResponse) string) {
	for _, c := range f.conns {
		c.mu.Lock()
		c.judge = by
		c.mu.Unlock()
	}
}

// total is a counter of a server, over all labels that contain the text.
func (f *fleet) total(ctx context.Context, s *faultrun.Server, name, label string) (float64, error) {
	r := f.Admin.At(s.HTTP).Do(ctx, "GET", "/v1/agent/metrics?format=prometheus", nil)
	if r.Status != 200 {
		return 0, errors.New(r.String())
	}
	sum := 0.0
	for line := range strings.SplitSeq(string(r.Body), "\n") {
		rest, ok := strings.CutPrefix(line, "consul_"+name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' || !strings.Contains(rest, label) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// states is how many proxies are in which state, as `corbel mesh status` shows.
func (f *fleet) states(ctx context.Context) (map[string]int, error) {
	var out struct{ States map[string]int }
	r := f.Admin.Do(ctx, "GET", "/v1/internal/mesh/status", nil)
	if r.Status != 200 {
		return nil, errors.New(r.String())
	}
	err := json.Unmarshal(r.Body, &out)
	return out.States, err
}
