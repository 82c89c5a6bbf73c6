package meshplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/core/hedge"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/mesh/leaf"
	"corbel.dev/corbel/node/base"
)

// Client is how a client agent follows servers.
type Client struct {
	b    *base.Base
	api  http.Handler // this agent's own, which asks servers
	Feed *feed.Client // nil without connect
}

// NewClient makes it; api may be ready later.
func NewClient(b *base.Base, api http.Handler) (_ *Client, err error) {
	c := &Client{b: b, api: api}
	if !b.Cfg.Connect.Enabled {
		return c, nil
	}
	c.Feed, err = feed.NewClient(feed.ClientConfig{Node: b.Cfg.Node.Name, Servers: b.OtherServers,
		Hedge: b.Cfg.Connect.Hedge, Clock: b.Clock, Log: b.Log, Metrics: b.Metrics,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return b.Wire.Dial(ctx, addr, wire.ProtoFeed, 0)
		}})
	return c, err
}

// Sign implements Source: any server has the certificate signed.
func (c *Client) Sign(ctx context.Context, r issue.Request) (issue.Certificate, error) {
	reply, err := hedge.Repeat(ctx, c.b.RPC, c.b.AnyServer, issue.Method, r.AppendPack(nil))
	if err != nil {
		return issue.Certificate{}, err
	}
	return issue.ReadCertificate(reply)
}

// roots implements Source.
func (c *Client) roots(ctx context.Context, index uint64) (leaf.Roots, error) {
	path := "/v1/connect/ca/roots?stale"
	if index > 0 {
		path += "&wait=" + rootsWait.String() + "&index=" + strconv.FormatUint(index, 10)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return leaf.Roots{}, err
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:0"
	answer, err := httpx.Answer(c.api, r)
	if err != nil {
		return leaf.Roots{}, err
	}
	if answer.Status != http.StatusOK {
		return leaf.Roots{}, fmt.Errorf("%d %s", answer.Status, strings.TrimSpace(string(answer.Body)))
	}
	var out struct{ ActiveRootID, TrustDomain string }
	if err := json.Unmarshal(answer.Body, &out); err != nil {
		return leaf.Roots{}, err
	}
	at, err := strconv.ParseUint(answer.Head.Get("X-Consul-Index"), 10, 64)
	return leaf.Roots{TrustDomain: out.TrustDomain, Active: out.ActiveRootID, Index: at}, err
}

func (c *Client) follower() feed.Follower { return c.Feed }

func (c *Client) registered(*directory) {} // an agent knows those of its own host

func (c *Client) recheck() time.Duration { return 0 }

func (c *Client) newest() uint64 { return c.Feed.Newest() }

func (c *Client) lacks() []string {
	if c.newest() > 0 {
		return nil
	}
	return []string{"the servers have not told what this host's proxies need"}
}

func (c *Client) part() life.Part { return life.Part{Name: "mesh feed", Run: c.Feed.Run} }
