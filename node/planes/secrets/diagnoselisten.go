package secretsplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/node/diagnosis"
	"corbel.dev/corbel/node/vaultconf"
)

// checkListeners judges each listener, and the address for other servers.
func (d *vaultDiagnosis) checkListeners(ctx context.Context) *diagnosis.Check {
	c := diagnosis.New("Start Listeners", "")
	for i := range d.cfg.Listeners {
		l := &d.cfg.Listeners[i]
		if l.TLS.Disable {
			c.Add(diagnosis.Skip("Check Listener TLS", l.Address+": tls_disable is set."))
		} else {
			c.Add(d.checkTLS(l))
		}
		c.Add(timed(func() *diagnosis.Check { return d.checkAddress(ctx, l) }))
	}
	if bind, err := d.clusterBind(); d.shared() && err == nil {
		c.Add(d.checkClusterPort(bind))
	}
	return c
}

func (d *vaultDiagnosis) checkTLS(l *vaultconf.Listener) *diagnosis.Check {
	c := diagnosis.New("Check Listener TLS", "%s", l.Address)
	if _, err := vaultTLS(&l.TLS); err != nil {
		return diagnosis.Failed("Check Listener TLS", err)
	}
	if min := strings.ToLower(l.TLS.MinVersion); min == "tls10" || min == "tls11" {
		c.Warnings = append(c.Warnings, "tls_min_version: "+min+" is broken; tls12 is the least that protects")
	}
	list, err := certificates(l.TLS.CertFile)
	if err != nil {
		return c.Add(diagnosis.Failed("tls_cert_file", err))
	}
	c.Add(diagnosis.Chain("tls_cert_file", l.TLS.CertFile, list, d.now))
	if l.TLS.ClientCAFile != "" {
		if list, err = certificates(l.TLS.ClientCAFile); err != nil {
			return c.Add(diagnosis.Failed("tls_client_ca_file", err))
		}
		c.Add(diagnosis.Authorities("tls_client_ca_file", l.TLS.ClientCAFile, list, d.now))
	}
	return c
}

// certificates reads those of a PEM file.
func certificates(path string) (list []*x509.Certificate, err error) {
	rest, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return list, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, cert)
	}
}

// checkAddress finds out whether a server could listen at an address, or does.
func (d *vaultDiagnosis) checkAddress(ctx context.Context, l *vaultconf.Listener) *diagnosis.Check {
	const name = "Create Listeners"
	if path, ok := strings.CutPrefix(l.Address, "unix://"); ok {
		return d.checkSocket(ctx, l, path)
	}
	if ln, err := net.Listen("tcp", l.Address); err == nil {
		_ = ln.Close()
		return diagnosis.New(name, "%s is free.", l.Address)
	} else if !neterr.InUse(err) {
		return diagnosis.Failed(name, err)
	}
	return d.inUse(ctx, l, name)
}

func (d *vaultDiagnosis) checkSocket(ctx context.Context, l *vaultconf.Listener, path string) *diagnosis.Check {
	const name = "Create Listeners"
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if folder := filepath.Dir(path); !mayWrite(folder) {
			return diagnosis.Failed(name, fmt.Errorf("%s: no socket can be made in %s", path, folder))
		}
		return diagnosis.New(name, "%s is free.", path)
	case err != nil:
		return diagnosis.Failed(name, err)
	case st.Mode()&fs.ModeSocket == 0:
		return diagnosis.Failed(name, fmt.Errorf("%s exists and is not a socket", path))
	}
	conn, err := net.DialTimeout("unix", path, diagnoseWithin)
	if err != nil {
		return diagnosis.New(name, "%s is a socket that nobody listens at: a server takes it over.", path)
	}
	_ = conn.Close()
	return d.inUse(ctx, l, name)
}

// inUse judges an address that somebody listens at: it is good when that is a server of secrets.
func (d *vaultDiagnosis) inUse(ctx context.Context, l *vaultconf.Listener, name string) *diagnosis.Check {
	state, err := askSealStatus(ctx, l)
	if err != nil {
		return diagnosis.Failed(name, fmt.Errorf("%s is in use, and what listens there is no server of secrets: %w",
			l.Address, err)).
			Advise("End what listens there, or choose another address.")
	}
	d.running = true
	return diagnosis.New(name, "%s is in use by a running server: %s.", l.Address, state)
}

// askSealStatus asks whoever listens at an address, on this host, what it is.
func askSealStatus(ctx context.Context, l *vaultconf.Listener) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, diagnoseWithin)
	defer cancel()
	// The server is to say what it is, and is told nothing: whose certificate it shows does not matter.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	at := strings.TrimPrefix(l.Address, "unix://")
	if at != l.Address {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", at)
		}
	}
	target := "http://localhost"
	if at == l.Address {
		target = listenerURL(l)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target+"/v1/sys/seal-status", nil)
	if err != nil {
		return "", err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var st struct {
		Initialized, Sealed *bool
		Version             string
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&st); err != nil || st.Initialized == nil ||
		st.Sealed == nil {
		return "", fmt.Errorf("it answers %s to sys/seal-status", resp.Status)
	}
	words := map[bool]string{true: "", false: "not "}
	return fmt.Sprintf("version %s, %sinitialized, %ssealed", st.Version, words[*st.Initialized], words[*st.Sealed]), nil
}

func (d *vaultDiagnosis) checkClusterPort(bind string) *diagnosis.Check {
	const name = "Create Cluster Listener"
	ln, err := net.Listen("tcp", bind)
	switch {
	case err == nil:
		_ = ln.Close()
		return diagnosis.New(name, "%s is free.", bind)
	case neterr.InUse(err) && d.running:
		return diagnosis.New(name, "%s is in use, as a server runs.", bind)
	}
	return diagnosis.Failed(name, err)
}
