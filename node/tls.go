package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/node/config"
)

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
	own := serverName(cfg.Node.Datacenter, cfg.DNS.Domain)
	if cfg.Server && cert.Leaf.VerifyHostname(own) != nil {
		return nil, fmt.Errorf("tls.internal_rpc.cert_file: a server's certificate names %s, by which the other servers "+
			"know it; this one names %v. "+
			"Make one with: corbel tls cert create -server -dc %s", own, cert.Leaf.DNSNames, cfg.Node.Datacenter)
	}
	return withNames(&wire.TLS{Server: server, Client: client}, cfg), nil
}

// withNames says by which names peers are known.
func withNames(id *wire.TLS, cfg *config.Config) *wire.TLS {
	id.OwnName, id.Domain = serverName(cfg.Node.Datacenter, cfg.DNS.Domain), trimDot(cfg.DNS.Domain)
	if cfg.TLS.InternalRPC.VerifyServerHostname {
		id.ServerName = id.OwnName
	}
	// What the mesh's authority signs is for agents and services, also where it has the same root as the operator's.
	id.Lesser = func(c *x509.Certificate) bool { _, err := ca.PeerID(c); return err == nil }
	return id
}

// identityFor is the identity of the RPC port; nil means plain text.
func (b *base) identityFor(cfg *config.Config) (*wire.TLS, error) {
	if cfg.AutoEncrypt.TLS {
		return b.enrolled.identity(&cfg.TLS.InternalRPC, cfg)
	}
	id, err := wireTLS(cfg)
	if id != nil && (cfg.AutoEncrypt.AllowTLS || cfg.AutoConfig.Authorize) {
		id.Guests = wire.GuestsOf(&b.guests, errors.New("this server does not know the mesh's roots yet"))
	}
	return id, err
}

// endOf is when the certificate of an identity ends, in Unix seconds; 0 without one.
func endOf(id *wire.TLS) int64 {
	if id == nil || len(id.Server.Certificates) == 0 || id.Server.Certificates[0].Leaf == nil {
		return 0
	}
	return id.Server.Certificates[0].Leaf.NotAfter.Unix()
}

// httpsTLS builds the TLS of the HTTPS port.
func (b *base) httpsTLS(cfg *config.Config) (*tls.Config, error) {
	return b.portTLS(cfg, "https", &cfg.TLS.HTTPS, "http/1.1")
}

// grpcTLS builds the TLS of the gRPC port.
func (b *base) grpcTLS(cfg *config.Config) (*tls.Config, error) {
	return b.portTLS(cfg, "grpc", &cfg.TLS.GRPC, "h2")
}

// portTLS builds the TLS of a port for clients; name is that of its block.
func (b *base) portTLS(cfg *config.Config, name string, block *config.TLSBlock, protocol string) (*tls.Config, error) {
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
		c.Certificates, c.GetCertificate = nil, b.enrolled.forServer
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

// loadRoots reads whom the block trusts; nil when it names nobody.
func loadRoots(b *config.TLSBlock) (roots *x509.CertPool, err error) {
	files := []string{}
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
	if len(files) == 0 {
		return nil, nil
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

// serverName is what the certificate of a datacenter's servers must show.
func serverName(dc, domain string) string { return "server." + dc + "." + trimDot(domain) }

func trimDot(domain string) string {
	for len(domain) > 0 && domain[len(domain)-1] == '.' {
		domain = domain[:len(domain)-1]
	}
	return domain
}
