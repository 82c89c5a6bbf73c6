package node

import (
	"bytes"
	"context"
	"net/http"

	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
	meshplane "corbel.dev/corbel/node/planes/mesh"
)

// sides is what dataplanes ask of this process.
func (p *localAgent) sides() meshplane.Sides {
	return meshplane.Sides{Ask: p.askSelf, MayWrite: p.mayWriteService, Token: p.tokenOr,
		Resolve: func(ctx context.Context, a dnsapi.Asked) []byte { return p.dns.Resolve(ctx, a) }}
}

// tokenOr is the caller's token, or that of requests which bring none.
func (p *localAgent) tokenOr(token string) string {
	if token == "" {
		return p.Tokens.Get(base.TokenDefault)
	}
	return token
}

// askSelf asks this process's own HTTP API for who is at remote.
func (p *localAgent) askSelf(ctx context.Context, remote, method, path, token string, body []byte) (status int,
	index string, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, errkind.E(errkind.Invalid, "the request", err)
	}
	r.RequestURI, r.RemoteAddr = path, remote
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
func (p *localAgent) mayWriteService(ctx context.Context, token, service string) error {
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
