package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/spawn"
)

// stopReading asks a follower for more than any socket holds, and takes nothing of it.
func stopReading(ctx context.Context, b *environment) (string, error) {
	s, err := b.follower(ctx)
	if err != nil {
		return "", err
	}
	value := strings.NewReader(strings.Repeat("x", 400<<10))
	resp, err := s.client.Do(ctx, "PUT", "/v1/kv/lab-big", nil, value)
	if err != nil {
		return "", err
	}
	_ = resp.Body.Close()
	for { // until the follower has it too
		var found []any
		_, err := s.client.Get(ctx, "/v1/kv/lab-big", client.Query{Stale: true}, &found)
		if err == nil && len(found) > 0 {
			break
		}
		if err := spawn.Sleep(ctx, 50*time.Millisecond); err != nil {
			return "", err
		}
	}
	conn, err := net.DialTimeout("tcp", s.HTTP, time.Second)
	if err != nil {
		return "", err
	}
	b.later(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		return "", err
	}
	asks := bytes.Repeat([]byte("GET /v1/kv/lab-big?stale HTTP/1.1\r\nHost: lab\r\n\r\n"), 40)
	if _, err := conn.Write(asks); err != nil {
		return "", err
	}
	return "http subscriber 127.0.0.1", nil
}

// labKey opens the monitor to the lab; the cluster lives for a minute on loopback.
const labKey = "6f9fe2fe-9b8b-4a37-9e0d-7a3a1f1d8f10"

// monitorKey is the value of the header that opens it.
var monitorKey = "Key " + labKey

const monitorConfig = `monitor {
  enabled = true
  cluster_admin_username = "admin"
  cluster_admin_password = "P@ssw0rd!"
  cluster_admin_api_key = "` + labKey + `"
}
tls { disabled = true }`

// monitorClient speaks to the monitor of the first server as its administrator.
func (b *environment) monitorClient() (*client.Client, error) {
	c, err := client.New(client.Config{Address: "http://" + b.servers[0].Monitor, Timeout: 10 * time.Second,
		Transport: header{"Authorization", &monitorKey}})
	if err == nil {
		b.later(c.Close)
	}
	return c, err
}

// hangHandler gives events to a handler that does not end.
func hangHandler(ctx context.Context, b *environment) (string, error) {
	c, err := b.monitorClient()
	if err != nil {
		return "", err
	}
	const base = "/api/core/v2/namespaces/default/"
	handler := map[string]any{"metadata": map[string]any{"name": "pager", "namespace": "default"}, "type": "pipe",
		"command": "sleep 1000"}
	if err := send(ctx, c, "PUT", base+"handlers/pager", handler); err != nil {
		return "", err
	}
	for n := range 200 {
		entity := fmt.Sprintf("web-%d", n)
		event := map[string]any{
			"entity": map[string]any{"metadata": map[string]any{"name": entity, "namespace": "default"},
				"entity_class": "proxy"},
			"check": map[string]any{"metadata": map[string]any{"name": "disk", "namespace": "default"}, "interval": 10,
				"status": 2, "output": "full",
				"handlers": []string{"pager"}}}
		if err := send(ctx, c, "PUT", base+"events/"+entity+"/disk", event); err != nil {
			return "", err
		}
	}
	return "handler pager", nil
}

func send(ctx context.Context, c *client.Client, method, path string, body any) error {
	resp, err := c.Do(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
