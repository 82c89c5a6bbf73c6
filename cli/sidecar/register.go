package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// A registration lives by heartbeats, so that it does not outlive a proxy that was killed: it turns critical
// after its TTL and is forgotten a while later.
const (
	heartbeatTTL   = 30 * time.Second
	heartbeatEvery = 10 * time.Second
	forgetAfter    = "1h"
)

// Registration is what a proxy of the service that registers itself is registered as.
func Registration(service, id, host string, port int) map[string]any {
	return map[string]any{"Kind": "connect-proxy", "ID": id, "Name": id, "Address": host, "Port": port,
		"Proxy": map[string]any{"DestinationServiceName": service},
		"Check": map[string]any{"CheckID": checkID(id), "Name": "Built-in proxy", "TTL": heartbeatTTL.String(),
			"Status": "passing", "DeregisterCriticalServiceAfter": forgetAfter}}
}

func checkID(id string) string { return "service:" + id }

// keepRegistered registers the proxy, keeps its check passing, and deregisters it when ctx ends.
func (p *Proxy) keepRegistered(ctx context.Context) {
	id := fmt.Sprint(p.cfg.Registration["ID"])
	known := false
	for ctx.Err() == nil {
		var err error
		if known {
			err = p.cfg.Client.Send(ctx, http.MethodPut, "/v1/agent/check/pass/"+client.Escape(checkID(id)), nil, nil, nil)
			known = !client.IsNotFound(err) // an agent that lost it is told again
		}
		if !known {
			err = p.cfg.Client.Register(ctx, p.cfg.Registration)
			known = err == nil
		}
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("the proxy is not registered", "id", id, "error", err)
		}
		command.Wait(ctx, heartbeatEvery)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := p.cfg.Client.Deregister(last, id); err != nil {
		p.cfg.Log.Warn("the proxy stays registered", "id", id, "error", err)
	}
}
