package node

import (
	"bytes"
	"cmp"
	"context"
	"net/http"

	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/api/xds/side"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/base"
)

// maxSideCalls bounds the calls of dataplanes at a time: each keeps two streams open.
const maxSideCalls = 1 << 15

// sideMethods are what dataplanes ask for on the ports for Envoys.
func (p *Process) sideMethods() map[string]h2.Method {
	return side.Methods(side.Config{Ask: p.askSelf, MayWrite: p.mayWriteService, Servers: p.sideServers,
		Changes: p.Pool.Changes,
		Sign: func(ctx context.Context, token, csr string) (string, error) {
			c, err := p.sign(ctx, issue.Request{Token: p.tokenOr(token), CSR: csr})
			return c.CertPEM, err
		},
		DNS: func(ctx context.Context, token string, query []byte, tcp bool) ([]byte, error) {
			answer := p.dns.Resolve(ctx, dnsapi.Asked{Query: query, TCP: tcp, Token: p.tokenOr(token)})
			if answer == nil {
				return nil, errkind.New(errkind.Invalid, "msg deserves no reply: it is no question")
			}
			return answer, nil
		}})
}

// tokenOr is the caller's token, or that of requests which bring none.
func (p *Process) tokenOr(token string) string {
	if token == "" {
		return p.Tokens.Get(base.TokenDefault)
	}
	return token
}

// askSelf asks this process's own HTTP API, for a dataplane from where that is.
func (p *Process) askSelf(ctx context.Context, method, path, token string, body []byte) (status int, index string,
	answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, errkind.E(errkind.Invalid, "the request", err)
	}
	r.RequestURI, r.RemoteAddr = path, cmp.Or(h2.Remote(ctx), "127.0.0.1:0")
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	w, err := httpx.Answer(p.api, r)
	if err != nil {
		return 0, "", nil, err
	}
	return w.Status, w.Head.Get("X-Consul-Index"), w.Body, ctx.Err()
}

// mayWriteService tells whether a token has service:write on a service, or with "" on any.
func (p *Process) mayWriteService(ctx context.Context, token, service string) error {
	if !p.Cfg.ACL.Enabled {
		return nil
	}
	grant, err := p.access.tokens.Grant(ctx, p.tokenOr(token))
	switch {
	case errkind.Is(err, errkind.Denied):
		return &h2.Status{Code: h2.Unauthenticated, Message: errkind.Text(err)}
	case err != nil:
		return err
	case service == "":
		return grant.CheckAny(acl.Service, acl.Write)
	}
	return grant.Check(acl.Service, service, acl.Write)
}

// sideServers are the servers of this datacenter that are ready, or all living ones while none is.
func (p *Process) sideServers() []side.Server {
	var all, ready []side.Server
	for _, m := range p.Pool.Members(member.ActAskServer) {
		if m.Status != member.Alive {
			continue
		}
		s := side.Server{ID: m.Tags["id"], Address: m.Addr, Version: m.Tags["build"]}
		all = append(all, s)
		if m.Tags[base.TagAway] == "" {
			ready = append(ready, s)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return all
}
