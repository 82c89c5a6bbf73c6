package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// Authority is what the servers of one cluster know each other by: a root of their own, of which each makes itself a
// certificate. It opens no record; whoever has it can speak to the cluster port.
type Authority struct {
	Cert []byte `json:"certificate"` // PEM
	Key  []byte `json:"key"`         // PEM
}

// authorityYears is how long an authority lasts: as long as the cluster, most likely.
const authorityYears = 30

// NewAuthority makes one.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template("corbel secrets cluster", now)
	t.IsCA, t.KeyUsage, t.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})}, nil
}

func template(name string, now time.Time) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(authorityYears, 0, 0),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
}

// Identity makes the certificate of one server and the TLS that goes with it: both sides show one, and each is checked.
func (a *Authority) Identity(server string, now time.Time) (*wire.TLS, error) {
	pair, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the cluster's authority: %w", err)
	}
	root := pair.Leaf
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template(server, now), root, &key.PublicKey, pair.PrivateKey)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	own := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &wire.TLS{
		AllServers: true,
		Server: &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: roots,
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13},
		Client: &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots, MinVersion: tls.VersionTLS13},
	}, nil
}

// Nobody is the TLS of a server that is of no cluster yet: every handshake fails.
func Nobody() *wire.TLS {
	none := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return nil, errors.New("this server is no member of a cluster yet, or is sealed")
	}
	return &wire.TLS{AllServers: true, Server: &tls.Config{GetConfigForClient: none, MinVersion: tls.VersionTLS13},
		Client: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}}
}

// load reads an authority from a file; nil where there is none.
func load(fsys vfs.FS, path string) (*Authority, error) {
	raw, err := vfs.ReadDurable(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "", err)
	}
	a := &Authority{}
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "%s is not what was stored: %w", path, err)
	}
	return a, nil
}

func (a *Authority) save(fsys vfs.FS, path string) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return errkind.E(errkind.Unavailable, "", vfs.WriteFileAtomic(fsys, path, raw, 0o600))
}
