package lab

import (
	"context"
	"fmt"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/fault/netns"
)

// agentsOfLab is how many hosts the network scenarios have beside the server.
const agentsOfLab = 3

// hosts starts a server and agents, each on a host of its own in a network of namespaces. Their APIs are reached
// through unix sockets.
func hosts(ctx context.Context, b *environment) error {
	if err := netns.Available(); err != nil {
		return fmt.Errorf("this scenario needs network namespaces: %w", err)
	}
	var err error
	if b.net, err = netns.New(1 + agentsOfLab); err != nil {
		return err
	}
	b.later(func() { _ = b.net.Close() })
	if b.servers, err = b.cluster(ctx, "server", 1); err != nil {
		return err
	}
	for i := range agentsOfLab {
		a, err := b.agent(b.servers[0].of, fmt.Sprintf("agent-%d", 1+i), 1+i)
		if a != nil {
			b.servers = append(b.servers, a)
		}
		if err != nil {
			return err
		}
	}
	return b.ready(ctx, b.servers...)
}

// throughAgents reads large values through each agent, so that the server sends to all hosts.
func throughAgents(b *environment) []stream {
	value := make([]byte, 32<<10)
	return []stream{
		{workers: len(b.servers), every: 10 * time.Millisecond, send: func(ctx context.Context, c *client.Client, worker,
			n int) error {
			key := fmt.Sprintf("/v1/kv/lab/%d", worker)
			if n == 0 {
				return c.Put(ctx, key, nil, string(value), nil)
			}
			var out []any
			_, err := c.Get(ctx, key, client.Query{}, &out)
			return err
		}},
	}
}

// losePackets drops one of twelve packets from the server to one agent.
func losePackets(_ context.Context, b *environment) (string, error) {
	faulty := b.servers[2]
	return "network to " + faulty.Name, b.net.Lose(0, faulty.Host, 8)
}

// resetConnections has a middlebox end connections between the server and one agent.
func resetConnections(_ context.Context, b *environment) (string, error) {
	faulty := b.servers[2]
	return faulty.Name, b.net.Reset(0, faulty.Host, 20)
}

// amplify makes each commit of the secrets plane three.
func amplify(ctx context.Context, b *environment) (string, error) {
	_, err := b.servers[0].Control.Do(ctx, fault.Command{Do: fault.DoRepeat, Count: 3})
	return "secrets write", err
}

// floodConnections are enough that others wait longer than the limit on any machine: with 300 a cluster on two cores
// kept its limits, and somebody who takes much and harms nobody is no finding.
const floodConnections = 2000

// flood is one client that asks as fast as it can, with many connections.
func flood(_ context.Context, b *environment) (string, error) {
	const noisy = "127.0.0.2"
	b.add(b.load.ctx, stream{workers: floodConnections, from: noisy, send: putKey})
	return "address " + noisy, nil
}
