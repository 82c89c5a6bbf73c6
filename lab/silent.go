package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"

	"corbel.dev/corbel/client"
)

// killFollower ends one of three servers, or two of five: the next loss would end the writes.
func killFollower(ctx context.Context, b *environment) (expected, error) {
	s, err := b.follower(ctx)
	if err != nil {
		return expected{}, err
	}
	s.Kill()
	silent := s.Name
	for range b.size()/2 - 1 {
		if s, err = b.follower(ctx); err != nil {
			return expected{}, err
		}
		s.Kill()
		silent = "" // either may come first
	}
	return expected{first: finding{"member-silent", silent},
		also: []finding{{"no-spare-voter", "quorum of catalog"}}}, nil
}

// listening starts a cluster whose metrics go to a statsd server that is there.
func listening(ctx context.Context, b *environment) error {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.endOutside = func() { _ = l.Close() }
	b.later(b.endOutside)
	hcl := fmt.Sprintf("telemetry { statsd_address = %q }", l.LocalAddr())
	b.servers, err = b.cluster(ctx, "server", b.size(), hcl)
	return err
}

// deafen ends the statsd server.
func deafen(_ context.Context, b *environment) (string, error) {
	b.endOutside()
	return "metrics sink statsd", nil
}

const (
	// smallBudget is what requests may hold of each server's memory.
	smallBudget = `limits { request_memory = 8388608 }`
	// heldUploads, from two addresses, are more than smallBudget has room for.
	heldUploads = 32
	uploadBytes = 400 << 10
)

// holdMemory has clients begin large writes at the leader that they do not end, while another one goes on with large
// ones of its own.
func holdMemory(ctx context.Context, b *environment) (string, error) {
	s, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	half := make([]byte, uploadBytes/2)
	for i := range heldUploads {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%2))}, Timeout: 5 * time.Second}
		conn, err := d.DialContext(ctx, "tcp", s.HTTP)
		if err != nil {
			return "", err
		}
		b.later(func() { _ = conn.Close() })
		head := fmt.Sprintf("PUT /v1/kv/lab/held/%d HTTP/1.1\r\nHost: lab\r\nContent-Length: %d\r\n\r\n", i, uploadBytes)
		if _, err := conn.Write(append([]byte(head), half...)); err != nil {
			return "", err
		}
	}
	value := string(bytes.Repeat([]byte("x"), uploadBytes))
	put := func(ctx context.Context, _ *client.Client, worker, n int) error {
		return s.client.Put(ctx, fmt.Sprintf("/v1/kv/lab/large/%d", worker), nil, value, nil)
	}
	b.add(b.load.ctx, stream{workers: 1, every: 200 * time.Millisecond, send: put})
	return "request memory of " + s.Name, nil
}

// nameNobody makes a check whose events go to a handler that does not exist.
func nameNobody(ctx context.Context, b *environment) (string, error) {
	c, err := b.monitorClient()
	if err != nil {
		return "", err
	}
	check := map[string]any{"metadata": map[string]any{"name": "disk", "namespace": "default"},
		"command": "true", "interval": 10, "publish": true, "subscriptions": []string{"web"}, "handlers": []string{"pagr"}}
	return "configuration of the monitor", send(ctx, c, "PUT", "/api/core/v2/namespaces/default/checks/disk", check)
}
