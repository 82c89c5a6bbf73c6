package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Operator is what an operator does to the servers as a Raft group.
type Operator struct{ c *Client }

// Operator speaks for an operator through this client.
func (c *Client) Operator() Operator { return Operator{c} }

// RaftConfiguration lists the servers' Raft group.
func (o Operator) RaftConfiguration(ctx context.Context, q Query) (*RaftConfiguration, error) {
	var out RaftConfiguration
	_, err := o.c.Get(ctx, "/v1/operator/raft/configuration", q, &out)
	return &out, err
}

// RaftRemove removes a server by id or, when id is empty, by address.
func (o Operator) RaftRemove(ctx context.Context, id, address string) error {
	v := url.Values{}
	if id != "" {
		v.Set("id", id)
	} else {
		v.Set("address", address)
	}
	_, err := o.c.call(ctx, http.MethodDelete, "/v1/operator/raft/peer", v, nil, nil, 0)
	return err
}

// RaftTransfer hands leadership to a server by id, or to any when id is empty.
func (o Operator) RaftTransfer(ctx context.Context, id string) error {
	v := url.Values{}
	if id != "" {
		v.Set("id", id)
	}
	_, err := o.c.call(ctx, http.MethodPost, "/v1/operator/raft/transfer-leader", v, nil, nil, 0)
	return err
}

// Autopilot reads the servers' self-care.
func (o Operator) Autopilot(ctx context.Context, q Query) (*Autopilot, error) {
	var out Autopilot
	_, err := o.c.Get(ctx, "/v1/operator/autopilot/configuration", q, &out)
	return &out, err
}

// SetAutopilot writes it if nobody changed it since it was read; false otherwise.
func (o Operator) SetAutopilot(ctx context.Context, a *Autopilot) (ok bool, err error) {
	v := url.Values{"cas": {strconv.FormatUint(a.ModifyIndex, 10)}}
	err = o.c.Put(ctx, "/v1/operator/autopilot/configuration", v, a, &ok)
	return ok, err
}
