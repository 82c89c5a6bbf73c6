package lab

import (
	"context"
	"fmt"
	"net"
	"time"

	"corbel.dev/corbel/kit/spawn"
)

// terminating is the instance that goes.
const terminating = "web-1"

// instance registers a service of the first server's host, which takes connections and does nothing with them.
func (b *environment) instance(ctx context.Context) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	b.later(func() { _ = l.Close() })
	b.load.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.load.Go(func() {
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1)) // until its client goes
			})
		}
	})
	port := l.Addr().(*net.TCPAddr).Port
	return l.Addr().String(), b.servers[0].client.Put(ctx, "/v1/agent/service/register", nil,
		map[string]any{"Name": "web", "ID": terminating, "Address": "127.0.0.1", "Port": port}, nil)
}

// drainBusy drains an instance that a client knows by its address, and not by the catalog.
func drainBusy(ctx context.Context, b *environment) (string, error) {
	addr, err := b.instance(ctx)
	if err != nil {
		return "", err
	}
	b.load.Go(func() {
		for b.load.ctx.Err() == nil {
			if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				b.load.Go(func() {
					_ = spawn.Sleep(b.load.ctx, 3*time.Second)
					_ = conn.Close()
				})
			}
			_ = spawn.Sleep(b.load.ctx, 300*time.Millisecond)
		}
	})
	if err := spawn.Sleep(ctx, 2*time.Second); err != nil {
		return "", err
	}
	return "terminating instance " + terminating,
		b.servers[0].client.Put(ctx, fmt.Sprintf("/v1/agent/service/drain/%s?wait=0s", terminating), nil, nil, nil)
}

// throttleAndDrain lowers a proxy's quota beside an instance that goes and is asked still.
func throttleAndDrain(ctx context.Context, b *environment) (expected, error) {
	going, err := drainBusy(ctx, b)
	if err != nil {
		return expected{}, err
	}
	quota, err := throttleProxy(ctx, b)
	return expected{first: finding{"proxy-throttled", quota}, also: []finding{{"terminating-instance", going}}}, err
}

// giveQuota mends the proxy.
func giveQuota(_ context.Context, b *environment) (expected, error) {
	return expected{first: finding{"terminating-instance", terminating}}, b.quota.set(8)
}
