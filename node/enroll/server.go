package enroll

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
)

// Server gives certificates to agents that have none, and judges those that have one. auto_encrypt gives them for an
// ACL token, auto_config for a JWT.
type Server struct {
	Datacenter string
	State      func() *statestore.State
	Issuer     *issue.Issuer
	ForTokens  bool        // auto_encrypt
	Introducer *Introducer // nil without auto_config
	Now        func() time.Time
	Log        *slog.Logger
}

// Strangers answers what strangers may ask, on a protocol of its own.
func (s *Server) Strangers() *rpc.Server {
	srv := rpc.NewServer(rpc.ServerConfig{Log: s.Log, MaxMessageBytes: 64 << 10, MaxStreams: 4})
	srv.Handle(wire.Anyone, MethodTrustDomain, s.answerTrustDomain)
	if s.ForTokens {
		srv.Handle(wire.Anyone, issue.Method, func(ctx context.Context, req []byte) ([]byte, error) {
			return s.Issuer.Serve(ctx, rpc.Peer(ctx), req)
		})
	}
	if s.Introducer != nil {
		srv.Handle(wire.Anyone, MethodIntroduce, s.Introducer.Serve)
	}
	return srv
}

// Register has srv answer what servers that do not lead pass on, and agents that renew their certificates ask.
func (s *Server) Register(srv *rpc.Server) {
	if s.Introducer != nil {
		srv.Handle(wire.Servers, MethodIntroduce, s.Introducer.Serve)
		srv.Handle(wire.Members, MethodTrustDomain, s.answerTrustDomain)
	}
}

// Guests judges agents that show a certificate.
func (s *Server) Guests() *wire.Guests {
	return &wire.Guests{Verify: s.verifyAgent, Epoch: func() uint64 { return ca.Epoch(s.State()) }}
}

func (s *Server) answerTrustDomain(context.Context, []byte) ([]byte, error) {
	domain, err := ca.TrustDomainOf(s.State())
	return pack.String(nil, domain), err
}

// verifyAgent judges a peer with a certificate of the mesh: agents of this datacenter alone are let in, and no service.
func (s *Server) verifyAgent(state tls.ConnectionState) error {
	st := s.State()
	check, err := s.agentCheck(st)
	if err != nil {
		return err
	}
	return check(state)
}

// agentCheck makes the check of a State. Connections are rare enough to make it for each.
func (s *Server) agentCheck(st *statestore.State) (func(tls.ConnectionState) error, error) {
	domain, err := ca.TrustDomainOf(st)
	if err != nil {
		return nil, err
	}
	roots, err := ca.Roots(st)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, r := range roots {
		texts = append(texts, r.RootCert)
	}
	return ca.VerifyPeer(texts, s.Now, func(id ca.ID) bool {
		return id.Kind == ca.AgentID && id.TrustDomain == domain && id.Datacenter == s.Datacenter
	}), nil
}
