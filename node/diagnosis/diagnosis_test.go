package diagnosis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"io/fs"
	"math/big"
	"strings"
	"testing"
	"time"
)

// The worst supersedes, what was skipped does not count, and a table says each with its mark.
func TestTree(t *testing.T) {
	tree := New("All", "").Add(New("A", "fine.").Add(Skip("B", "left out.")),
		New("C", "").Add(New("D", "odd.").As(Warn).Advise("Look."), Skip("E", "no.")))
	if tree.Settle() != Warn || tree.Children[0].Status != OK || tree.Children[1].Status != Warn {
		t.Errorf("%+v", tree)
	}
	var b strings.Builder
	if err := tree.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	const want = `[ warning ] All
  [ success ] A: fine.
    [ skipped ] B: left out.
  [ warning ] C
    [ warning ] D: odd.
      Look.
    [ skipped ] E: no.
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	tree.Children[0].Warnings = []string{"x"}
	tree.Add(New("F", "one\ntwo").As(Fail))
	b.Reset()
	if err := tree.Write(&b, true); err != nil || tree.Settle() != Fail || tree.Children[0].Status != Warn ||
		!strings.Contains(b.String(), "[ failure ] F: one\n      two (0 ms)") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestHost(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		got  *Check
		want Status
	}{
		"few files":          {OpenFiles(1024), Warn},
		"many files":         {OpenFiles(1 << 20), OK},
		"room":               {Disk("/", 50*gib, 100*gib), OK},
		"little of much":     {Disk("/", 4*gib, 100*gib), Warn},
		"little at all":      {Disk("/", gib/2, gib), Warn},
		"no room":            {Disk("/", 0, gib), Fail},
		"no disk":            {Disk("/", 0, 0), Fail},
		"a folder":           {Folder("/x", fs.ModeDir|0o770, false, true), OK},
		"a file":             {Folder("/x", 0o700, false, true), Fail},
		"of somebody else":   {Folder("/x", fs.ModeDir|0o700, false, false), Fail},
		"of everybody":       {Folder("/x", fs.ModeDir|0o701, false, true), Warn},
		"a link to a folder": {Folder("/x", fs.ModeDir|0o700, true, true), Warn},
	} {
		if c.got.Settle() != c.want || (c.want != OK) != (c.got.Advice != "") {
			t.Errorf("%s: %+v, want %s", name, c.got, c.want)
		}
	}
}

type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// make signs a certificate that holds from the first of May to the last.
func (s *signer) make(t *testing.T, name string, change func(*x509.Certificate)) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		BasicConstraintsValid: true,
		NotBefore:             time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2026, 7, 31, 0, 0, 0, 0, time.UTC)}
	if change != nil {
		change(c)
	}
	parent, by := c, key
	if s != nil {
		parent, by = s.cert, s.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert, key}
}

func TestCertificates(t *testing.T) {
	authority := func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }
	var none *signer
	root, other := none.make(t, "root", authority), none.make(t, "other", authority)
	leaf := root.make(t, "leaf", nil).cert
	client := root.make(t, "client", func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}).cert
	nameless := root.make(t, "nameless", func(c *x509.Certificate) { c.DNSNames = nil }).cert
	day := func(month time.Month, day int) time.Time { return time.Date(2026, month, day, 12, 0, 0, 0, time.UTC) }
	list := func(l ...*x509.Certificate) []*x509.Certificate { return l }
	for name, c := range map[string]struct {
		got  *Check
		want Status
	}{
		"good":             {Chain("n", "f", list(leaf, root.cert), day(5, 10)), OK},
		"expires soon":     {Chain("n", "f", list(leaf), day(7, 5)), Warn},
		"expired":          {Chain("n", "f", list(leaf), day(8, 1)), Fail},
		"not yet":          {Chain("n", "f", list(leaf), day(4, 30)), Fail},
		"another's":        {Chain("n", "f", list(leaf, other.cert), day(5, 10)), Warn},
		"of clients":       {Chain("n", "f", list(client), day(5, 10)), Warn},
		"without names":    {Chain("n", "f", list(nameless), day(5, 10)), Warn},
		"none":             {Chain("n", "f", nil, day(5, 10)), Fail},
		"authority":        {Authorities("n", "f", list(root.cert), day(5, 10)), OK},
		"no authority":     {Authorities("n", "f", list(root.cert, leaf), day(5, 10)), Fail},
		"expired one":      {Authorities("n", "f", list(root.cert), day(9, 1)), Fail},
		"no authority yet": {Authorities("n", "f", nil, day(5, 10)), Fail},
	} {
		if got := c.got.Settle(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
