//go:build unix

// Package slapdtest starts OpenLDAP's server, Debian's package slapd, for tests. Where there is none the test says
// that it did not run.
package slapdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
)

// Directory is what a server has.
type Directory struct {
	Entries string // LDIF, of dc=example,dc=com
	Access  string // who may do what: lines of slapd.conf; "": nobody but Root
	Schema  string // lines of slapd.conf
	Options string // lines of the database
}

// The server's own administrator.
const (
	Root     = "cn=admin,dc=example,dc=com"
	RootPass = "root-word"
)

// Start starts a server that ends with the test, and gives its address and the certificate that vouches for it.
func Start(t testing.TB, d Directory) (addr, ca string) {
	t.Helper()
	bin, err := exec.LookPath("slapd")
	if err != nil {
		bin, err = exec.LookPath("/usr/sbin/slapd")
	}
	if err != nil {
		loud.Skip(t, "no slapd: %v", err)
	}
	conf, entries, ca := written(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Deadline)
	defer cancel()
	add := exec.CommandContext(ctx, bin, "-T", "add", "-f", conf, "-l", entries)
	if out, err := add.CombinedOutput(); err != nil {
		loud.Skip(t, "slapd cannot load a directory here: %v: %s", err, out)
	}
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	addr = fmt.Sprintf("ldap://127.0.0.1:%d", ports[0])
	var tail spawn.Tail
	server := exec.CommandContext(context.WithoutCancel(t.Context()), bin, "-f", conf, "-h", addr, "-d", "0")
	server.Stdout, server.Stderr = &tail, &tail
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("slapd: %s", tail.String())
		}
	})
	polltest.Until(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(addr, "ldap://"))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "slapd takes connections")
	return addr, ca
}

// written are the server's files, and the certificate that vouches for it.
func written(t testing.TB, d Directory) (conf, entries, ca string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	as := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, as, as, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	conf = file("slapd.conf", fmt.Sprintf(`include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
%[4]smodulepath /usr/lib/ldap
moduleload back_mdb
pidfile %[1]s/pid
TLSCertificateFile %[2]s
TLSCertificateKeyFile %[3]s
database mdb
maxsize 10485760
suffix "dc=example,dc=com"
directory %[1]s/data
rootdn "%[5]s"
%[6]s%[7]s`, dir, file("cert.pem", ca), file("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY",
		Bytes: private}))), d.Schema, Root, d.Options, d.Access))
	return conf, file("entries.ldif", d.Entries), ca
}
