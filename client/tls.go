package client

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"

	"corbel.dev/corbel/kit/errkind"
)

// TLSFiles says whom a client trusts and what it shows.
type TLSFiles struct {
	CAFile     string // PEM; without it and CAPath the system's authorities
	CAPath     string // folder whose files are all PEM
	CertFile   string // client certificate
	KeyFile    string
	ServerName string // the name that the server's certificate must have instead of the host's
	SkipVerify bool   // accept any certificate
}

// Config reads the files. Errors have kind Invalid and name the file.
func (f *TLSFiles) Config() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName, InsecureSkipVerify: f.SkipVerify}
	authorities, err := f.authorities()
	if err != nil {
		return nil, err
	}
	if f.CAFile != "" || f.CAPath != "" {
		t.RootCAs = x509.NewCertPool()
	}
	for _, path := range authorities {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "read the authorities", err)
		}
		if !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, errkind.Errorf(errkind.Invalid, "%s holds no certificate in PEM", path)
		}
	}
	if (f.CertFile == "") != (f.KeyFile == "") {
		return nil, errkind.New(errkind.Invalid,
			"a client certificate needs both its file and its key's file (CLIENT_CERT and CLIENT_KEY)")
	}
	if f.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "read the client certificate", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// authorities are the files that hold them.
func (f *TLSFiles) authorities() (files []string, err error) {
	if f.CAFile != "" {
		files = append(files, f.CAFile)
	}
	if f.CAPath == "" {
		return files, nil
	}
	entries, err := os.ReadDir(f.CAPath)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "read the folder of authorities", err)
	}
	for _, e := range entries {
		path := filepath.Join(f.CAPath, e.Name())
		if info, err := os.Stat(path); err == nil && info.IsDir() { // also behind a link, as in mounted secrets
			continue
		}
		files = append(files, path)
	}
	return files, nil
}
