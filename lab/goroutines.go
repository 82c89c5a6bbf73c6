package lab

import (
	"context"
	"fmt"
	"net"
	"time"

	"corbel.dev/corbel/kit/spawn"
)

const (
	// leakConnections is how many connections a client opens without end, leakEach how many in a tenth of a second.
	leakConnections = 8000
	leakEach        = 40
)

// leakRequests has a client ask again and again on new connections, each time for what it asks already, and never
// hang up: every question waits in a goroutine of its own.
func leakRequests(ctx context.Context, b *environment) (string, error) {
	s := b.servers[0]
	resp, err := s.client.Do(ctx, "GET", "/v1/config/service-defaults", nil, nil)
	if err != nil {
		return "", err
	}
	_ = resp.Body.Close()
	ask := fmt.Sprintf("GET /v1/config/service-defaults?wait=300s&index=%s HTTP/1.1\r\nHost: lab\r\n\r\n",
		resp.Header.Get("X-Consul-Index"))
	b.load.Go(func() {
		var all []net.Conn
		defer func() {
			for _, c := range all {
				_ = c.Close()
			}
		}()
		for len(all) < leakConnections && spawn.Sleep(b.load.ctx, 100*time.Millisecond) == nil {
			for range leakEach {
				c, err := net.DialTimeout("tcp", s.HTTP, time.Second)
				if err != nil {
					break
				}
				all = append(all, c)
				_, _ = c.Write([]byte(ask))
			}
		}
		<-b.load.ctx.Done()
	})
	return "goroutines of " + s.Name, nil
}
