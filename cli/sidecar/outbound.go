package sidecar

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"corbel.dev/corbel/client"
)

// instance is one that discovery named, with what it must prove to be.
type instance struct{ address, service, datacenter string }

const (
	// maxTries is how many instances are tried for one connection.
	maxTries = 3
	// findTimeout bounds the question which instances there are.
	findTimeout = 10 * time.Second
)

// serveOutbound takes one local connection to an instance of the upstream.
func (p *Proxy) serveOutbound(ctx context.Context, local net.Conn, u *Upstream) {
	remote, err := p.reach(ctx, u)
	if err != nil {
		p.cfg.Log.Warn("the upstream is not reached", "upstream", u.Name, "error", err)
		return
	}
	defer remote.Close()
	join(ctx, local, remote)
}

// reach connects to one of the instances, in random order, so that each gets its share.
func (p *Proxy) reach(ctx context.Context, u *Upstream) (net.Conn, error) {
	list, err := p.find(ctx, u)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("there is no healthy instance with a proxy")
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	var errs []error
	for _, one := range list[:min(len(list), maxTries)] {
		c, err := p.dial(ctx, u, one)
		if err == nil {
			return c, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", one.address, err))
	}
	return nil, errors.Join(errs...)
}

func (p *Proxy) dial(ctx context.Context, u *Upstream, one instance) (net.Conn, error) {
	timeout := u.ConnectTimeout
	if timeout == 0 {
		timeout = defaultConnectTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", one.address)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, p.identity.client(one.service, one.datacenter))
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// found is an instance as health and queries answer.
type found struct {
	Node    struct{ Address, Datacenter string }
	Service struct {
		Address string
		Port    int
	}
}

// find asks the agent, whose cache is kept up to date.
func (p *Proxy) find(ctx context.Context, u *Upstream) ([]instance, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	q := client.Query{Datacenter: u.Datacenter}
	service := u.Name
	var list []found
	if u.Query {
		var answer struct {
			Service string
			Nodes   []found
		}
		if _, err := p.cfg.Client.Get(ctx, "/v1/query/"+client.Escape(u.Name)+"/execute?connect=true", q,
			&answer); err != nil {
			return nil, err
		}
		service, list = answer.Service, answer.Nodes
	} else if _, err := p.cfg.Client.Get(ctx, "/v1/health/connect/"+client.Escape(u.Name)+"?passing&cached", q,
		&list); err != nil {
		return nil, err
	}
	out := make([]instance, 0, len(list))
	for _, f := range list {
		host := f.Service.Address
		if host == "" {
			host = f.Node.Address
		}
		out = append(out, instance{net.JoinHostPort(host, strconv.Itoa(f.Service.Port)), service, f.Node.Datacenter})
	}
	return out, nil
}
