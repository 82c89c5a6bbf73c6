package base

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/node/config"
)

// Certs are the certificates that come and go while the process runs.
type Certs struct {
	End atomic.Int64 // when that of the RPC port ends, in Unix seconds; 0 without one
	// enrolled is what a client agent got from a server; guests judges, on a server, agents that show one.
	Enrolled Enrolled
	Guests   atomic.Pointer[wire.Guests]
	// Peers tells, on a server, whether servers of peered clusters may connect, who show no certificate; nil until it
	// knows.
	Peers atomic.Pointer[func() bool]
}

// letPeersIn asks Peers.
func (c *Certs) letPeersIn() bool {
	f := c.Peers.Load()
	return f != nil && (*f)()
}

// wireTLS builds the identity of the RPC port from its block; nil means plain text.
func wireTLS(cfg *config.Config) (*wire.TLS, error) {
	b := &cfg.TLS.InternalRPC
	if cfg.TLS.Disabled || !b.Enabled() {
		return nil, nil
	}
	cert, roots, err := loadBlock(b)
	if err != nil {
		return nil, fmt.Errorf("tls.internal_rpc: %w", err)
	}
	if roots == nil {
		return nil, errors.New("tls.internal_rpc.ca_file: is needed beside a certificate, so that peers can be checked")
	}
	suites, err := b.Suites()
	if err != nil {
		return nil, fmt.Errorf("tls.internal_rpc.tls_cipher_suites: %w", err)
	}
	base := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: b.MinTLS(), CipherSuites: suites}
	server, client := base.Clone(), base.Clone()
	server.ClientCAs, server.ClientAuth = roots, tls.RequireAndVerifyClientCert
	client.RootCAs = roots
	own := ServerName(cfg.Node.Datacenter, cfg.DNS.Domain)
	if cfg.Server && cert.Leaf.VerifyHostname(own) != nil {
		return nil, fmt.Errorf("tls.internal_rpc.cert_file: a server's certificate names %s, by which the other servers "+
			"know it; this one names %v. "+
			"Make one with: corbel tls cert create -server -dc %s", own, cert.Leaf.DNSNames, cfg.Node.Datacenter)
	}
	return withNames(&wire.TLS{Server: server, Client: client}, cfg), nil
}

// withNames says by which names peers are known.
func withNames(id *wire.TLS, cfg *config.Config) *wire.TLS {
	id.OwnName, id.Domain = ServerName(cfg.Node.Datacenter, cfg.DNS.Domain), trimDot(cfg.DNS.Domain)
	if cfg.TLS.InternalRPC.VerifyServerHostname {
		id.ServerName = id.OwnName
	}
	// What the mesh's authority signs is for agents and services, also where it has the same root as the operator's.
	id.Lesser = func(c *x509.Certificate) bool { _, err := ca.PeerID(c); return err == nil }
	return id
}

// identityFor is the identity of the RPC port; nil means plain text.
func (b *Base) identityFor(cfg *config.Config) (*wire.TLS, error) {
	if cfg.AutoEncrypt.TLS {
		return b.Certs.Enrolled.Identity(&cfg.TLS.InternalRPC, cfg)
	}
	id, err := wireTLS(cfg)
	if id != nil && (cfg.AutoEncrypt.AllowTLS || cfg.AutoConfig.Authorize) {
		id.Guests = wire.GuestsOf(&b.Certs.Guests, errors.New("this server does not know the mesh's roots yet"))
	}
	if id != nil && cfg.Server {
		id.Peers = b.Certs.letPeersIn
	}
	return id, err
}

// RootsPEM are the certificates of those who sign for the servers of this cluster, as the files hold them; none where
// the RPC port has no TLS.
func RootsPEM(cfg *config.Config) (list []string, err error) {
	if cfg.TLS.Disabled || !cfg.TLS.InternalRPC.Enabled() {
		return nil, nil
	}
	files, err := rootFiles(&cfg.TLS.InternalRPC)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == "CERTIFICATE" {
				list = append(list, string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})))
			}
		}
	}
	return list, err
}

// endOf is when the certificate of an identity ends, in Unix seconds; 0 without one.
func endOf(id *wire.TLS) int64 {
	if id == nil || len(id.Server.Certificates) == 0 || id.Server.Certificates[0].Leaf == nil {
		return 0
	}
	return id.Server.Certificates[0].Leaf.NotAfter.Unix()
}

// CheckTLS names every file of TLS that is missing or wrong, as the start would.
func CheckTLS(cfg *config.Config) error {
	_, err := wireTLS(cfg)
	wrong := []error{err}
	b := &Base{}
	for _, port := range []struct {
		name  string
		on    bool
		block *config.TLSBlock
	}{{"https", len(cfg.Listen.HTTPS) > 0, &cfg.TLS.HTTPS}, {"grpc", len(cfg.Listen.GRPCTLS) > 0, &cfg.TLS.GRPC},
		{"monitor", cfg.Monitor.Enabled, &cfg.TLS.Monitor}} {
		if port.on && port.block.Enabled() {
			_, err := b.PortTLS(cfg, port.name, port.block, "")
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// HTTPSTLS builds the TLS of the HTTPS port.
func (b *Base) HTTPSTLS(cfg *config.Config) (*tls.Config, error) {
	return b.PortTLS(cfg, "https", &cfg.TLS.HTTPS, "http/1.1")
}

// HTTPSClient is how ports of other hosts of this cluster are spoken to that have the certificates of tls.https; nil is
// in plain text.
func HTTPSClient(cfg *config.Config) (*tls.Config, error) {
	block := &cfg.TLS.HTTPS
	if cfg.TLS.Disabled || !block.Enabled() {
		return nil, nil
	}
	cert, roots, err := loadBlock(block)
	if err != nil {
		return nil, fmt.Errorf("tls.https: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: block.MinTLS()}, nil
}

// GRPCTLS builds the TLS of the gRPC port.
func (b *Base) GRPCTLS(cfg *config.Config) (*tls.Config, error) {
	return b.PortTLS(cfg, "grpc", &cfg.TLS.GRPC, "h2")
}

// PortTLS builds the TLS of a port for clients; name is that of its block.
func (b *Base) PortTLS(cfg *config.Config, name string, block *config.TLSBlock, protocol string) (*tls.Config, error) {
	var cert tls.Certificate
	var roots *x509.CertPool
	var err error
	switch {
	case block.Enabled():
		cert, roots, err = loadBlock(block)
	case cfg.AutoEncrypt.TLS:
		roots, err = loadRoots(block)
	default:
		port := name
		if name == "grpc" {
			port = "grpc_tls"
		}
		return nil, fmt.Errorf("ports.%s: needs tls.%s.cert_file and key_file", port, name)
	}
	if err != nil {
		return nil, fmt.Errorf("tls.%s: %w", name, err)
	}
	suites, err := block.Suites()
	if err != nil {
		return nil, fmt.Errorf("tls.%s.tls_cipher_suites: %w", name, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: block.MinTLS(), CipherSuites: suites,
		NextProtos: []string{protocol}}
	if !block.Enabled() {
		c.Certificates, c.GetCertificate = nil, b.Certs.Enrolled.forServer
	}
	if block.VerifyIncoming {
		if roots == nil {
			return nil, fmt.Errorf("tls.%s.verify_incoming: needs ca_file or ca_path", name)
		}
		c.ClientCAs, c.ClientAuth = roots, tls.RequireAndVerifyClientCert
	}
	return c, nil
}

func loadBlock(b *config.TLSBlock) (cert tls.Certificate, roots *x509.CertPool, err error) {
	if cert, err = tls.LoadX509KeyPair(b.CertFile, b.KeyFile); err != nil {
		return cert, nil, fmt.Errorf("cert_file, key_file: %w", err)
	}
	roots, err = loadRoots(b)
	return cert, roots, err
}

// rootFiles are the files that name whom the block trusts.
func rootFiles(b *config.TLSBlock) (files []string, err error) {
	if b.CAFile != "" {
		files = append(files, b.CAFile)
	}
	if b.CAPath != "" {
		found, err := filepath.Glob(filepath.Join(b.CAPath, "*"))
		if err != nil {
			return nil, fmt.Errorf("ca_path: %w", err)
		}
		files = append(files, found...)
	}
	return files, nil
}

// loadRoots reads whom the block trusts; nil when it names nobody.
func loadRoots(b *config.TLSBlock) (roots *x509.CertPool, err error) {
	files, err := rootFiles(b)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	roots = x509.NewCertPool()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		if !roots.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate", file)
		}
	}
	return roots, nil
}

// ServerName is what the certificate of a datacenter's servers must show.
func ServerName(dc, domain string) string { return "server." + dc + "." + trimDot(domain) }

func trimDot(domain string) string {
	for len(domain) > 0 && domain[len(domain)-1] == '.' {
		domain = domain[:len(domain)-1]
	}
	return domain
}

// Enrolled is the certificate that this agent got from a server (auto_encrypt.tls). The zero value has none yet.
type Enrolled struct {
	Now atomic.Pointer[tls.Certificate]
}

var errNotEnrolled = errors.New("this agent has not got its certificate from a server yet")

func (e *Enrolled) forServer(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := e.Now.Load(); c != nil {
		return c, nil
	}
	return nil, errNotEnrolled
}

// forClient shows nothing before there is a certificate: then servers let it enrol and no more.
func (e *Enrolled) forClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if c := e.Now.Load(); c != nil {
		return c, nil
	}
	return &tls.Certificate{}, nil
}

// Identity is the RPC port's: servers are known by the operator's authority, and this agent by what it got.
func (e *Enrolled) Identity(b *config.TLSBlock, cfg *config.Config) (*wire.TLS, error) {
	roots, err := loadRoots(b)
	if err != nil {
		return nil, fmt.Errorf("tls.internal_rpc: %w", err)
	}
	suites, err := b.Suites()
	if err != nil {
		return nil, fmt.Errorf("tls.internal_rpc.tls_cipher_suites: %w", err)
	}
	base := tls.Config{MinVersion: b.MinTLS(), CipherSuites: suites}
	server, client := base.Clone(), base.Clone()
	server.GetCertificate, server.ClientCAs, server.ClientAuth = e.forServer, roots, tls.RequireAndVerifyClientCert
	client.GetClientCertificate, client.RootCAs = e.forClient, roots
	return withNames(&wire.TLS{Server: server, Client: client}, cfg), nil
}
