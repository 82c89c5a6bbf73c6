package catalogruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// idleLimit is how long a server may need to notice that watchers vanished.
const idleLimit = 30 * time.Second

// RunVanishing parks n blocking queries, lets their clients vanish, and looks that
// the server's goroutines return to what they were. It returns base, peak and end.
func RunVanishing(ctx context.Context, l *faultrun.Lab, n int) (base, peak, end int, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 1})
	if err != nil {
		return 0, 0, 0, err
	}
	defer c.Close()
	s := c.Servers[0]
	index := c.Admin.Do(ctx, "GET", "/v1/catalog/services", nil).Index()
	c.Admin.Do(ctx, "PUT", "/v1/kv/idle", []byte("x"))
	err = spawn.Until(ctx, idleLimit, "all planes to be ready", func() error { // each has goroutines of its own
		if a := c.Admin.Do(ctx, "GET", "/v1/agent/health/ready", nil); a.Status != http.StatusOK {
			return fmt.Errorf("%d: %s", a.Status, a.Body)
		}
		return nil
	})
	if err != nil {
		return 0, 0, 0, err
	}
	if base, err = goroutines(ctx, c); err != nil {
		return base, 0, 0, err
	}
	conns, err := park(s.HTTP, n, index)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	if err != nil {
		return base, 0, 0, err
	}
	err = spawn.Until(ctx, idleLimit, fmt.Sprintf("%d watchers to be parked", n),
		func() error { return blocking(ctx, c, func(v int) bool { return v >= n }) })
	if err != nil {
		return base, peak, 0, err
	}
	if peak, err = goroutines(ctx, c); err != nil {
		return base, peak, 0, err
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	err = spawn.Until(ctx, idleLimit, "goroutines to return to base", func() (err error) {
		end, err = goroutines(ctx, c)
		if err == nil && end > base+n/20 { // planes start some of their own meanwhile; a leak is n
			err = fmt.Errorf("%d goroutines, %d before", end, base)
		}
		return err
	})
	if err == nil {
		err = spawn.Until(ctx, idleLimit, "no query to be parked",
			func() error { return blocking(ctx, c, func(v int) bool { return v < n/10 }) })
	}
	return base, peak, end, errors.Join(err, c.Damage())
}

// blocking judges how many queries are parked, as the server itself counts them.
func blocking(ctx context.Context, c *faultrun.Cluster, good func(int) bool) error {
	list, err := metrics(ctx, c.Admin.At(c.Servers[0].HTTP))
	if err != nil {
		return err
	}
	for _, m := range list {
		if strings.HasSuffix(m.Name, "rpc.queries_blocking") {
			if !good(int(m.Value)) {
				return fmt.Errorf("%s is %g", m.Name, m.Value)
			}
			return nil
		}
	}
	return errors.New("the metrics do not tell")
}

// park opens n connections and sends a blocking query over each.
func park(addr string, n int, index uint64) ([]net.Conn, error) {
	request := fmt.Sprintf("GET /v1/kv/idle?index=%d&wait=300s HTTP/1.1\r\nHost: %s\r\n\r\n", index+1000, addr)
	var conns []net.Conn
	for range n {
		conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			return conns, err
		}
		conns = append(conns, conn)
		if _, err := conn.Write([]byte(request)); err != nil {
			return conns, err
		}
	}
	return conns, nil
}

// metric is a gauge or counter of /v1/agent/metrics as the API prints it.
type metric struct {
	Name   string
	Value  float64
	Count  int
	Sum    float64
	Labels map[string]string
}

// metrics reads the server's measurements.
func metrics(ctx context.Context, c *faultrun.Client) ([]metric, error) {
	var answer struct{ Gauges, Counters []metric }
	if err := c.List(ctx, "/v1/agent/metrics", &answer); err != nil {
		return nil, err
	}
	return slices.Concat(answer.Gauges, answer.Counters), nil
}

// goroutines are those of the first member.
func goroutines(ctx context.Context, c *faultrun.Cluster) (int, error) {
	r := c.Admin.At(c.Servers[0].HTTP).Do(ctx, "GET", "/v1/agent/self", nil)
	var self struct{ Stats map[string]map[string]string }
	if r.Status != 200 || json.Unmarshal(r.Body, &self) != nil {
		return 0, errors.New(r.String())
	}
	return strconv.Atoi(self.Stats["runtime"]["goroutines"])
}
