package meshplane

import (
	"context"

	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/api/xds/side"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/base"
)

// maxSideCalls bounds the calls of dataplanes at a time: each keeps two streams open.
const maxSideCalls = 1 << 15

// Sides is what dataplanes ask of this process, beside its mesh. All of it may be ready later than New.
type Sides struct {
	// Ask asks this process's own HTTP API for who is at remote.
	Ask func(ctx context.Context, remote, method, path, token string, body []byte) (status int, index string,
		answer []byte, err error)
	// MayWrite tells whether a token has service:write on a service, or with "" on any.
	MayWrite func(ctx context.Context, token, service string) error
	// Resolve answers a DNS question; nil is none.
	Resolve func(ctx context.Context, asked dnsapi.Asked) []byte
	// Token is the caller's token, or that of requests which bring none.
	Token func(token string) string
}

// Methods are what dataplanes ask for on the ports for Envoys.
func (s Sides) Methods(b *base.Base, source Source) map[string]h2.Method {
	return side.Methods(side.Config{Ask: s.Ask, MayWrite: s.MayWrite, Changes: b.Pool.Changes,
		Servers: func() []side.Server { return serversOf(b.Pool) },
		Sign: func(ctx context.Context, token, csr string) (string, error) {
			c, err := source.Sign(ctx, issue.Request{Token: s.Token(token), CSR: csr})
			return c.CertPEM, err
		},
		DNS: func(ctx context.Context, token string, query []byte, tcp bool) ([]byte, error) {
			answer := s.Resolve(ctx, dnsapi.Asked{Query: query, TCP: tcp, Token: s.Token(token)})
			if answer == nil {
				return nil, errkind.New(errkind.Invalid, "msg deserves no reply: it is no question")
			}
			return answer, nil
		}})
}

// serversOf are the servers of this datacenter that are ready, or all living ones while none is.
func serversOf(pool *member.Pool) []side.Server {
	var all, ready []side.Server
	for _, m := range pool.Members(member.ActAskServer) {
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
