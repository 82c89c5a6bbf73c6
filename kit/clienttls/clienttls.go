// Package clienttls makes the TLS settings of a client from the files that a configuration names. Errors name the keys
// as the configuration has them.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files are those of a client. An empty CA is the system's authorities; without Cert the client shows none.
type Files struct{ CA, Cert, Key string }

// Config reads the files. names are the keys by which the configuration has them.
func (f Files) Config(names Files) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", names.CA, err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s holds no certificate", names.CA, f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("%s, %s: one needs the other", names.Cert, names.Key)
	}
	if f.Cert == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", names.Cert, names.Key, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
