package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
)

// methodTrustDomain is the RPC that tells an agent without a certificate for which trust domain to ask.
const methodTrustDomain = "mesh.trust-domain"

// welcome has a server give certificates to agents that have none, and let in those that have one. auto_encrypt gives
// them for an ACL token, auto_config for a JWT.
func (p *Process) welcome() {
	srv := enrolment(p)
	if p.introducer != nil {
		p.RPCSrv.Handle(wire.Servers, methodIntroduce, p.introducer.serve) // from servers that do not lead
		p.RPCSrv.Handle(wire.Members, methodTrustDomain, p.serveTrustDomain)
	}
	p.Parts.Add("enrolment", func(ctx context.Context) error {
		return srv.Run(ctx, p.Wire.Listen(wire.ProtoEnroll, 0, wire.Anyone))
	})
	p.Certs.Guests.Store(&wire.Guests{Verify: p.verifyAgent, Epoch: func() uint64 { return ca.Epoch(p.registry.State()) }})
}

// enrolment is what strangers may ask, on a protocol of its own.
func enrolment(p *Process) *rpc.Server {
	srv := rpc.NewServer(rpc.ServerConfig{Log: p.Log, MaxMessageBytes: 64 << 10, MaxStreams: 4})
	srv.Handle(wire.Anyone, methodTrustDomain, p.serveTrustDomain)
	if p.Cfg.AutoEncrypt.AllowTLS {
		srv.Handle(wire.Anyone, issue.Method, func(ctx context.Context, req []byte) ([]byte, error) {
			return p.issuer.Serve(ctx, rpc.Peer(ctx), req)
		})
	}
	if p.introducer != nil {
		srv.Handle(wire.Anyone, methodIntroduce, p.introducer.serve)
	}
	return srv
}

func (p *Process) serveTrustDomain(context.Context, []byte) ([]byte, error) {
	domain, err := ca.TrustDomainOf(p.registry.State())
	return pack.String(nil, domain), err
}

// verifyAgent judges a peer with a certificate of the mesh: agents of this datacenter alone are let in, and no service.
func (p *Process) verifyAgent(s tls.ConnectionState) error {
	st := p.registry.State()
	check, err := p.agentCheck(st)
	if err != nil {
		return err
	}
	return check(s)
}

// agentCheck makes the check of a State. Connections are rare enough to make it for each.
func (p *Process) agentCheck(st *catalog.State) (func(tls.ConnectionState) error, error) {
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
	return ca.VerifyPeer(texts, p.Clock.Now, func(id ca.ID) bool {
		return id.Kind == ca.AgentID && id.TrustDomain == domain && id.Datacenter == p.Cfg.Node.Datacenter
	}), nil
}

// The pauses between tries to get a certificate, and how long one may take.
const (
	enrolRetryMin = 250 * time.Millisecond
	enrolRetryMax = 15 * time.Second
	enrolTimeout  = 20 * time.Second
)

// enrol keeps this agent's certificate, from its start until ctx ends.
func (p *Process) enrol(ctx context.Context) error {
	client := enrolClient(p.Wire)
	defer func() { _ = client.Close() }()
	pause := backoff.Backoff{Min: enrolRetryMin, Max: enrolRetryMax}
	var renew time.Time
	ask, key := p.askToEnrol, "auto_encrypt.tls"
	if p.Cfg.AutoConfig.Enabled {
		ask, key = p.askAsIntroduced, "auto_config"
		if c := p.Certs.Enrolled.Now.Load(); c != nil { // from before the start
			renew = p.take(c)
		}
	}
	for ctx.Err() == nil {
		var changed <-chan struct{} // who is there, which matters while there is no certificate
		wait := renew.Sub(p.Clock.Now())
		if wait <= 0 {
			changed = p.Pool.Changes() // before the look at who is there
			cert, err := ask(ctx, client)
			if err == nil {
				pause.Reset()
				renew = p.take(cert)
				continue
			}
			if wait = pause.Next(); pause.Tries()%8 == 0 {
				p.Log.Warn("no server has issued this agent a certificate ("+key+")", "error", err)
			}
		}
		t := p.Clock.NewTimer(min(wait, time.Minute)) // timers stand still while a machine sleeps, certificates do not
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

func enrolClient(w *wire.Wire) *rpc.Client {
	return rpc.NewClient(rpc.ClientConfig{Timeout: enrolTimeout, IdleTimeout: enrolTimeout,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return w.Dial(ctx, addr, wire.ProtoEnroll, 0)
		}})
}

// take makes a certificate the one in force and returns when to renew it.
func (p *Process) take(cert *tls.Certificate) (renew time.Time) {
	p.Certs.Enrolled.Now.Store(cert)
	p.Certs.End.Store(cert.Leaf.NotAfter.Unix())
	p.Log.Info("got a certificate from a server", "until", cert.Leaf.NotAfter)
	now := p.Clock.Now()
	return now.Add(time.Duration(float64(cert.Leaf.NotAfter.Sub(now)) * (0.6 + 0.3*rand.Float64())))
}

// askToEnrol has a server sign a certificate for this agent.
func (p *Process) askToEnrol(ctx context.Context, client *rpc.Client) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	addr, err := p.anyServer()
	if err != nil {
		return nil, err
	}
	id, key, csr, err := agentRequest(ctx, client, p.Cfg, addr)
	if err != nil {
		return nil, err
	}
	req := issue.Request{Token: p.agentToken(), CSR: csr}
	reply, err := client.Call(ctx, addr, issue.Method, req.AppendPack(nil))
	if err != nil {
		return nil, err
	}
	signed, err := issue.ReadCertificate(reply)
	if err != nil {
		return nil, err
	}
	return ownCertificate(signed.CertPEM, key, id)
}

// agentToken is the token of the agent's own requests.
func (p *Process) agentToken() string {
	return cmp.Or(p.Tokens.Get(base.TokenAgent), p.Tokens.Get(base.TokenDefault))
}

// agentRequest makes a key and the request for an agent's certificate, for the trust domain that the server names.
func agentRequest(ctx context.Context, client *rpc.Client, cfg *config.Config, addr string) (id ca.ID, key, csr string,
	err error) {
	reply, err := client.Call(ctx, addr, methodTrustDomain, nil)
	if err != nil {
		return id, "", "", err
	}
	rd := pack.Read(reply)
	id = ca.ID{Kind: ca.AgentID, TrustDomain: rd.String(), Datacenter: cfg.Node.Datacenter, Name: cfg.Node.Name}
	if rd.Err() != nil {
		return id, "", "", errkind.E(errkind.Corrupt, "read the trust domain", rd.Err())
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, text := range cfg.AutoEncrypt.IPSAN {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return id, "", "", err
		}
		ips = append(ips, addr.AsSlice())
	}
	key, csr, err = ca.NewRequest(id, append([]string{"localhost"}, cfg.AutoEncrypt.DNSSAN...), ips)
	return id, key, csr, err
}

// ownCertificate is what a server signed, if it is what was asked for.
func ownCertificate(certPEM, key string, id ca.ID) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair([]byte(certPEM), []byte(key))
	if err != nil {
		return nil, err
	}
	return &cert, checkOwn(cert.Leaf, id)
}

// checkOwn looks whether a server signed what was asked for.
func checkOwn(cert *x509.Certificate, id ca.ID) error {
	if got, err := ca.PeerID(cert); err != nil || got != id || !slices.Contains(cert.DNSNames, "localhost") {
		return fmt.Errorf("the server signed another certificate than was asked for: %v", cert.URIs)
	}
	return nil
}
