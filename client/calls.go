package client

import (
	"context"
	"errors"
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

// KVGet reads one key; nil when it does not exist, with the index to wait on.
func (c *Client) KVGet(ctx context.Context, key string, q Query) (*KVPair, Meta, error) {
	pairs, meta, err := c.kv(ctx, key, q, q.Values())
	if err != nil || len(pairs) == 0 {
		return nil, meta, err
	}
	return &pairs[0], meta, nil
}

// KVList reads all keys under a prefix in lexical order.
func (c *Client) KVList(ctx context.Context, prefix string, q Query) ([]KVPair, Meta, error) {
	v := q.Values()
	v.Set("recurse", "")
	return c.kv(ctx, prefix, q, v)
}

// kv reads pairs.
func (c *Client) kv(ctx context.Context, key string, q Query, v url.Values) (out []KVPair, meta Meta, err error) {
	meta, err = c.kvRead(ctx, key, q, v, &out)
	return out, meta, err
}

// KVKeys reads the names under a prefix, up to the next separator when one is given.
func (c *Client) KVKeys(ctx context.Context, prefix, separator string, q Query) (out []string, meta Meta, err error) {
	v := q.Values()
	v.Set("keys", "")
	if separator != "" {
		v.Set("separator", separator)
	}
	meta, err = c.kvRead(ctx, prefix, q, v, &out)
	return out, meta, err
}

// kvRead takes the contract's 404 without a text as "nothing there", with its index.
func (c *Client) kvRead(ctx context.Context, key string, q Query, v url.Values, out any) (Meta, error) {
	meta, err := c.call(ctx, http.MethodGet, "/v1/kv/"+Escape(key), v, nil, out, q.blockFor())
	var e *Error
	if errors.As(err, &e) && e.Code == http.StatusNotFound && e.Body == "" {
		return e.Meta, nil
	}
	return meta, err
}

// KVWrite says how a key is written. At most one of CAS, Acquire and Release.
type KVWrite struct {
	Flags            uint64
	CAS              *uint64 // only if the key's ModifyIndex is this; 0: only if absent
	Acquire, Release string  // session
}

// KVPut writes a key; false when CAS, Acquire or Release did not hold.
func (c *Client) KVPut(ctx context.Context, key string, value []byte, w KVWrite) (ok bool, err error) {
	v := url.Values{}
	if w.Flags != 0 {
		v.Set("flags", strconv.FormatUint(w.Flags, 10))
	}
	if w.CAS != nil {
		v.Set("cas", strconv.FormatUint(*w.CAS, 10))
	}
	if w.Acquire != "" {
		v.Set("acquire", w.Acquire)
	}
	if w.Release != "" {
		v.Set("release", w.Release)
	}
	if value == nil {
		value = []byte{}
	}
	err = c.Put(ctx, "/v1/kv/"+Escape(key), v, value, &ok)
	return ok, err
}

// KVDelete deletes a key, or all under it; false when cas did not hold.
func (c *Client) KVDelete(ctx context.Context, key string, recurse bool, cas *uint64) (ok bool, err error) {
	v := url.Values{}
	if recurse {
		v.Set("recurse", "")
	}
	if cas != nil {
		v.Set("cas", strconv.FormatUint(*cas, 10))
	}
	_, err = c.call(ctx, http.MethodDelete, "/v1/kv/"+Escape(key), v, nil, &ok, 0)
	return ok, err
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

// RaftConfiguration lists the servers' Raft group.
func (c *Client) RaftConfiguration(ctx context.Context, q Query) (*RaftConfiguration, error) {
	var out RaftConfiguration
	_, err := c.Get(ctx, "/v1/operator/raft/configuration", q, &out)
	return &out, err
}

// RaftRemove removes a server by id or, when id is empty, by address.
func (c *Client) RaftRemove(ctx context.Context, id, address string) error {
	v := url.Values{}
	if id != "" {
		v.Set("id", id)
	} else {
		v.Set("address", address)
	}
	_, err := c.call(ctx, http.MethodDelete, "/v1/operator/raft/peer", v, nil, nil, 0)
	return err
}

// RaftTransfer hands leadership to a server by id, or to any when id is empty.
func (c *Client) RaftTransfer(ctx context.Context, id string) error {
	v := url.Values{}
	if id != "" {
		v.Set("id", id)
	}
	_, err := c.call(ctx, http.MethodPost, "/v1/operator/raft/transfer-leader", v, nil, nil, 0)
	return err
}

// Autopilot reads the servers' self-care.
func (c *Client) Autopilot(ctx context.Context, q Query) (*Autopilot, error) {
	var out Autopilot
	_, err := c.Get(ctx, "/v1/operator/autopilot/configuration", q, &out)
	return &out, err
}

// SetAutopilot writes it if nobody changed it since it was read; false otherwise.
func (c *Client) SetAutopilot(ctx context.Context, a *Autopilot) (ok bool, err error) {
	v := url.Values{"cas": {strconv.FormatUint(a.ModifyIndex, 10)}}
	err = c.Put(ctx, "/v1/operator/autopilot/configuration", v, a, &ok)
	return ok, err
}
