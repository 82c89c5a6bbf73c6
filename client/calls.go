package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Services lists the names of all services with the union of their tags.
func (c *Client) Services(ctx context.Context, q Query) (out map[string][]string, meta Meta, err error) {
	meta, err = c.Get(ctx, "/v1/catalog/services", q, &out)
	return out, meta, err
}

// ServiceCounts counts the instances of all services. Agents of Consul answer 404.
func (c *Client) ServiceCounts(ctx context.Context, q Query) (out []ServiceCount, meta Meta, err error) {
	meta, err = c.Get(ctx, "/v1/health/counts/services", q, &out)
	return out, meta, err
}

// NodeCounts counts the instances on all nodes, where ServiceCounts counts.
func (c *Client) NodeCounts(ctx context.Context, q Query) (out []NodeCount, meta Meta, err error) {
	meta, err = c.Get(ctx, "/v1/health/counts/nodes", q, &out)
	return out, meta, err
}

// Service lists the instances of a service with their checks; passing leaves out all others.
func (c *Client) Service(ctx context.Context, name string, passing bool, q Query) (out []ServiceEntry, meta Meta,
	err error) {
	v := q.Values()
	if passing {
		v.Set("passing", "1")
	}
	meta, err = c.call(ctx, http.MethodGet, "/v1/health/service/"+Escape(name), v, nil, &out, q.blockFor())
	return out, meta, err
}

// Nodes lists the hosts of the catalog.
func (c *Client) Nodes(ctx context.Context, q Query) (out []Node, meta Meta, err error) {
	meta, err = c.Get(ctx, "/v1/catalog/nodes", q, &out)
	return out, meta, err
}

// ChecksInState lists checks: any, passing, warning or critical.
func (c *Client) ChecksInState(ctx context.Context, state string, q Query) (out []Check, meta Meta, err error) {
	meta, err = c.Get(ctx, "/v1/health/state/"+Escape(state), q, &out)
	return out, meta, err
}

// ChecksOfService lists the checks of a service's instances.
func (c *Client) ChecksOfService(ctx context.Context, name string, q Query) (out []Check, meta Meta, err error) {
	meta, err = c.Get(ctx, "/v1/health/checks/"+Escape(name), q, &out)
	return out, meta, err
}

// Register gives the agent a service definition, any value that encodes to the contract's JSON.
func (c *Client) Register(ctx context.Context, definition any) error {
	return c.Put(ctx, "/v1/agent/service/register", nil, definition, nil)
}

// Deregister takes a service from the agent, by its id.
func (c *Client) Deregister(ctx context.Context, id string) error {
	return c.Put(ctx, "/v1/agent/service/deregister/"+Escape(id), nil, nil, nil)
}

// CreateSession makes a session and returns its id.
func (c *Client) CreateSession(ctx context.Context, s Session) (string, error) {
	var out struct{ ID string }
	err := c.Put(ctx, "/v1/session/create", nil, s, &out)
	return out.ID, err
}

// RenewSession restarts a session's TTL; IsNotFound when it has ended.
func (c *Client) RenewSession(ctx context.Context, id string) error {
	return c.Put(ctx, "/v1/session/renew/"+Escape(id), nil, nil, nil)
}

// DestroySession ends a session.
func (c *Client) DestroySession(ctx context.Context, id string) error {
	return c.Put(ctx, "/v1/session/destroy/"+Escape(id), nil, nil, nil)
}

// Members lists the gossip pool as the agent sees it.
func (c *Client) Members(ctx context.Context, q Query) ([]Member, error) {
	return c.MembersOf(ctx, false, q)
}

// MembersOf is Members; wan lists the servers of all datacenters instead.
func (c *Client) MembersOf(ctx context.Context, wan bool, q Query) (out []Member, err error) {
	v := q.Values()
	if wan {
		v.Set("wan", "1")
	}
	_, err = c.call(ctx, http.MethodGet, "/v1/agent/members", v, nil, &out, 0)
	return out, err
}

// Self is what the agent says about itself.
func (c *Client) Self(ctx context.Context) (*Self, error) {
	var out Self
	_, err := c.Get(ctx, "/v1/agent/self", Query{}, &out)
	return &out, err
}

// Leader is the address of the servers' leader, "" when there is none.
func (c *Client) Leader(ctx context.Context) (out string, err error) {
	_, err = c.Get(ctx, "/v1/status/leader", Query{}, &out)
	return out, err
}

// Ready returns nil when the agent is ready for work, with all its planes.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.Get(ctx, "/v1/agent/health/ready", Query{}, nil)
	return err
}

// Join makes the agent join another; wan means a server of another datacenter.
func (c *Client) Join(ctx context.Context, addr string, wan bool) error {
	v := url.Values{}
	if wan {
		v.Set("wan", "1")
	}
	return c.Put(ctx, "/v1/agent/join/"+Escape(addr), v, nil, nil)
}

// Leave makes the agent leave and end.
func (c *Client) Leave(ctx context.Context) error {
	return c.Put(ctx, "/v1/agent/leave", nil, nil, nil)
}

// ForceLeave declares a failed member gone; prune forgets it at once.
func (c *Client) ForceLeave(ctx context.Context, node string, prune, wan bool) error {
	v := url.Values{}
	if wan {
		v.Set("wan", "1")
	}
	if prune {
		v.Set("prune", "1")
	}
	return c.Put(ctx, "/v1/agent/force-leave/"+Escape(node), v, nil, nil)
}

// Reload makes the agent read its configuration again.
func (c *Client) Reload(ctx context.Context) error {
	return c.Put(ctx, "/v1/agent/reload", nil, nil, nil)
}

// Maintenance puts the node, or one service by id, in or out of maintenance.
func (c *Client) Maintenance(ctx context.Context, service string, enable bool, reason string) error {
	v := url.Values{"enable": {strconv.FormatBool(enable)}}
	if reason != "" {
		v.Set("reason", reason)
	}
	path := "/v1/agent/maintenance"
	if service != "" {
		path = "/v1/agent/service/maintenance/" + Escape(service)
	}
	return c.Put(ctx, path, v, nil, nil)
}

// Drained is how far the draining of an instance is.
type Drained struct {
	Service, ID     string
	Done            bool
	Waiting         string // what for, in words
	Proxies         int
	Pending, Silent []string
	Open, Busy      int // connections
}

// Drain marks an instance as draining and waits, up to wait, until nobody sends it work. It may be repeated.
func (c *Client) Drain(ctx context.Context, id, reason string, wait, quiet time.Duration) (out Drained, err error) {
	v := url.Values{"wait": {wait.String()}, "quiet": {quiet.String()}}
	if reason != "" {
		v.Set("reason", reason)
	}
	return out, c.Put(ctx, "/v1/agent/service/drain/"+Escape(id), v, nil, &out)
}

// Undrain takes the mark away.
func (c *Client) Undrain(ctx context.Context, id string) error {
	return c.Put(ctx, "/v1/agent/service/drain/"+Escape(id), url.Values{"enable": {"false"}}, nil, nil)
}

// AgentChecks lists the checks of this agent by id.
func (c *Client) AgentChecks(ctx context.Context) (out map[string]Check, err error) {
	_, err = c.Get(ctx, "/v1/agent/checks", Query{}, &out)
	return out, err
}

// Monitor streams log lines until ctx ends. The caller closes the stream.
func (c *Client) Monitor(ctx context.Context, level string, asJSON bool) (io.ReadCloser, error) {
	v := url.Values{"loglevel": {level}}
	if asJSON {
		v.Set("logjson", "")
	}
	resp, err := c.Do(ctx, http.MethodGet, "/v1/agent/monitor", v, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
