// Package enroll gives agents the certificates by which servers know them (auto_encrypt), and what else they need to be
// one of the cluster (auto_config). An Agent asks; a Server and its Introducer answer, strangers among others.
package enroll

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/config"
)

// MethodTrustDomain is the RPC that tells an agent without a certificate for which trust domain to ask.
const MethodTrustDomain = "mesh.trust-domain"

// The pauses between tries to get a certificate, and how long one may take.
const (
	retryMin = 250 * time.Millisecond
	retryMax = 15 * time.Second
	timeout  = 20 * time.Second
)

// AgentConfig describes an Agent.
type AgentConfig struct {
	Config  *config.Config
	Current func() *config.Config // as the last reload left it
	Wire    *wire.Wire
	// RPC calls servers with the certificate in force; Server names one of them, Changes says that others are there.
	RPC     *rpc.Client
	Server  func() (string, error)
	Changes func() <-chan struct{}
	// Token is that of the agent's own requests; SetTokens takes those of another introduction.
	Token     func() string
	SetTokens func(*config.ACL)
	// Certificate is the one in force, nil for none; Take puts another one in force.
	Certificate func() *tls.Certificate
	Take        func(*tls.Certificate)
	FS          vfs.FS
	Clock       clock.Clock
	Log         *slog.Logger
}

// Agent keeps a client agent's certificate.
type Agent struct{ AgentConfig }

// Run keeps the certificate, from the agent's start until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	client := Client(a.Wire)
	defer func() { _ = client.Close() }()
	pause := backoff.Backoff{Min: retryMin, Max: retryMax}
	var renew time.Time
	ask, key := a.AskForToken, "auto_encrypt.tls"
	if a.Config.AutoConfig.Enabled {
		ask, key = a.AskAsIntroduced, "auto_config"
		if c := a.Certificate(); c != nil { // from before the start
			renew = a.take(c)
		}
	}
	for ctx.Err() == nil {
		var changed <-chan struct{} // who is there, which matters while there is no certificate
		wait := renew.Sub(a.Clock.Now())
		if wait <= 0 {
			changed = a.Changes() // before the look at who is there
			cert, err := ask(ctx, client)
			if err == nil {
				pause.Reset()
				renew = a.take(cert)
				continue
			}
			if wait = pause.Next(); pause.Tries()%8 == 0 {
				a.Log.Warn("no server has issued this agent a certificate ("+key+")", "error", err)
			}
		}
		t := a.Clock.NewTimer(min(wait, time.Minute)) // timers stand still while a machine sleeps, certificates do not
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

// Client calls what servers answer to strangers.
func Client(w *wire.Wire) *rpc.Client {
	return rpc.NewClient(rpc.ClientConfig{Timeout: timeout, IdleTimeout: timeout,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return w.Dial(ctx, addr, wire.ProtoEnroll, 0)
		}})
}

// take makes a certificate the one in force and returns when to renew it.
func (a *Agent) take(cert *tls.Certificate) (renew time.Time) {
	a.Take(cert)
	a.Log.Info("got a certificate from a server", "until", cert.Leaf.NotAfter)
	now := a.Clock.Now()
	return now.Add(time.Duration(float64(cert.Leaf.NotAfter.Sub(now)) * (0.6 + 0.3*rand.Float64())))
}

// AskForToken has a server sign a certificate for this agent.
func (a *Agent) AskForToken(ctx context.Context, client *rpc.Client) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addr, err := a.Server()
	if err != nil {
		return nil, err
	}
	id, key, csr, err := agentRequest(ctx, client, a.Config, addr)
	if err != nil {
		return nil, err
	}
	req := issue.Request{Token: a.Token(), CSR: csr}
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

// agentRequest makes a key and the request for an agent's certificate, for the trust domain that the server names.
func agentRequest(ctx context.Context, client *rpc.Client, cfg *config.Config, addr string) (id ca.ID, key, csr string,
	err error) {
	reply, err := client.Call(ctx, addr, MethodTrustDomain, nil)
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
