// Package certs makes the certificates of a cluster: an authority, and what servers,
// agents and command lines show each other.
//
// It talks to nobody. Files that are there are never written over.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"time"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// TLS builds `tls`.
func TLS(e *command.Env, c *cobra.Command) {
	command.Group(c, command.Named("ca", "The cluster's own authority", caCreate(e)),
		command.Named("cert", "Certificates of the authority", certCreate(e)))
}

// serial is a random serial number, as certificates want it.
func serial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// write makes a file that was not there.
func write(path string, block *pem.Block, perm os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already: move it away, or work in another folder", path)
	}
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, block), f.Close())
}

// save writes a certificate and its key and says so.
func save(e *command.Env, name string, cert []byte, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := write(name+".pem", &pem.Block{Type: "CERTIFICATE", Bytes: cert}, 0o644); err != nil {
		return err
	}
	if err := write(name+"-key.pem", &pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}, 0o600); err != nil {
		return err
	}
	return e.Printf("==> Saved %s.pem\n==> Saved %s-key.pem\n", name, name)
}

func caCreate(e *command.Env) *cobra.Command {
	var days int
	var domain, common, cluster string
	var constrain bool
	var names []string
	c := &cobra.Command{Use: "create", Short: "Create a certificate authority: DOMAIN-agent-ca.pem and its key",
		Args: command.Between(0, 0, "flags only")}
	f := c.Flags()
	f.IntVar(&days, "days", 1825, "how long it is valid")
	f.StringVar(&domain, "domain", "consul", "domain of the names in its certificates")
	f.StringVar(&common, "common-name", "", "name of the authority; default one with its number")
	f.StringVar(&cluster, "cluster-id", "", "id of the cluster, for its name in the mesh")
	f.BoolVar(&constrain, "name-constraint", false, "may sign names of the domain only")
	f.StringArrayVar(&names, "additional-name-constraint", nil, "another domain it may sign names of (repeat)")
	c.RunE = func(*cobra.Command, []string) error {
		number, err := serial()
		if err != nil {
			return err
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		if err != nil {
			return err
		}
		id := sha256.Sum256(public)
		if common == "" {
			common = "Consul Agent CA " + number.String()
		}
		now := time.Now()
		t := &x509.Certificate{SerialNumber: number, Subject: pkix.Name{CommonName: common, Organization: []string{"Corbel"}},
			NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(0, 0, days), IsCA: true, BasicConstraintsValid: true,
			SubjectKeyId: id[:20],
			KeyUsage:     x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature}
		if constrain || len(names) > 0 {
			t.PermittedDNSDomainsCritical = true
			t.PermittedDNSDomains = append(slices.Clone(names), domain, "localhost")
		}
		if cluster != "" {
			t.DNSNames = []string{cluster + "." + domain}
		}
		cert, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
		if err != nil {
			return err
		}
		return save(e, domain+"-agent-ca", cert, key)
	}
	return c
}

// certFlags are the flags of `tls cert create`.
type certFlags struct {
	ca, key, dc, domain, node string
	days                      int
	server, client, cli       bool
	names, addresses          []string
}

func certCreate(e *command.Env) *cobra.Command {
	var o certFlags
	c := &cobra.Command{Use: "create", Short: "Create a certificate: DC-server-DOMAIN-0.pem and its key",
		Args: command.Between(0, 0, "flags only")}
	f := c.Flags()
	f.StringVar(&o.ca, "ca", "#DOMAIN#-agent-ca.pem", "the authority")
	f.StringVar(&o.key, "key", "#DOMAIN#-agent-ca-key.pem", "its key")
	f.StringVar(&o.dc, "dc", "dc1", "datacenter")
	f.StringVar(&o.domain, "domain", "consul", "domain")
	f.StringVar(&o.node, "node", "", "with --server: name of the server's node")
	f.IntVar(&o.days, "days", 365, "how long it is valid")
	f.BoolVar(&o.server, "server", false, "for a server")
	f.BoolVar(&o.client, "client", false, "for an agent")
	f.BoolVar(&o.cli, "cli", false, "for a command line")
	f.StringArrayVar(&o.names, "additional-dnsname", nil, "another name (repeat)")
	f.StringArrayVar(&o.addresses, "additional-ipaddress", nil, "another address (repeat)")
	c.RunE = func(*cobra.Command, []string) error { return o.create(e) }
	return c
}

// template is the certificate without its key, and what it is for.
func (o *certFlags) template() (*x509.Certificate, string, error) {
	kinds := map[string]bool{"server": o.server, "client": o.client, "cli": o.cli}
	kind := ""
	for _, k := range command.SortedKeys(kinds) {
		if kinds[k] && kind != "" {
			return nil, "", command.Usagef("--server, --client and --cli exclude each other")
		}
		if kinds[k] {
			kind = k
		}
	}
	if kind == "" {
		return nil, "", command.Usagef("give one of --server, --client and --cli")
	}
	if o.node != "" && kind != "server" {
		return nil, "", command.Usagef("--node goes with --server only")
	}
	number, err := serial()
	if err != nil {
		return nil, "", err
	}
	name := kind + "." + o.dc + "." + o.domain
	now := time.Now()
	t := &x509.Certificate{SerialNumber: number, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Minute),
		NotAfter:              now.AddDate(0, 0, o.days),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    append(slices.Clone(o.names), name, "localhost")}
	if o.node != "" {
		t.DNSNames = append(t.DNSNames, o.node+"."+name)
	}
	if kind == "cli" {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	} else {
		t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1).To4()}
	}
	for _, text := range o.addresses {
		ip := net.ParseIP(text)
		if ip == nil {
			return nil, "", command.Usagef("--additional-ipaddress %s is no IP address", text)
		}
		t.IPAddresses = append(t.IPAddresses, ip)
	}
	return t, kind, nil
}

func (o *certFlags) create(e *command.Env) error {
	t, kind, err := o.template()
	if err != nil {
		return err
	}
	for _, path := range []*string{&o.ca, &o.key} {
		if (*path)[0] == '#' {
			*path = o.domain + (*path)[len("#DOMAIN#"):]
		}
	}
	authority, signer, err := readAuthority(o.ca, o.key)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if t.NotAfter.After(authority.NotAfter) {
		t.NotAfter = authority.NotAfter // what outlives its authority is good for nothing
	}
	cert, err := x509.CreateCertificate(rand.Reader, t, authority, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	if kind == "server" {
		fmt.Fprintln(e.Err, "warning: whoever has this key can act as a server and read everything: keep it on that "+
			"server alone")
	}
	if err := e.Printf("==> Using %s and %s\n", o.ca, o.key); err != nil {
		return err
	}
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s-%s-%s-%d", o.dc, kind, o.domain, n)
		if _, err := os.Stat(name + ".pem"); errors.Is(err, os.ErrNotExist) {
			return save(e, name, cert, key)
		} else if err != nil {
			return err
		}
	}
}

// readAuthority reads what signs.
func readAuthority(certPath, keyPath string) (*x509.Certificate, any, error) {
	read := func(path string) ([]byte, error) {
		text, err := command.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%w; make an authority with `tls ca create`", err)
		}
		block, _ := pem.Decode(text)
		if block == nil {
			return nil, fmt.Errorf("%s is not PEM", path)
		}
		return block.Bytes, nil
	}
	der, err := read(certPath)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", certPath, err)
	}
	secret, err := read(keyPath)
	if err != nil {
		return nil, nil, err
	}
	if key, err := x509.ParseECPrivateKey(secret); err == nil {
		return cert, key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(secret)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is no private key: %w", keyPath, err)
	}
	return cert, key, nil
}
