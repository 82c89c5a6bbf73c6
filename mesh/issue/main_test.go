package issue

import (
	"bytes"
	"testing"

	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// FuzzFrames: what comes from the network is read or refused, and what is read is written the same.
func FuzzFrames(f *testing.F) {
	r := Request{Token: "t", CSR: "c"}
	f.Add(r.AppendPack(nil))
	c := Certificate{Index: 7}
	c.SerialNumber, c.CertPEM, c.RootID = "aa", "PEM", "root"
	f.Add(c.AppendPack(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := ReadRequest(b); err == nil {
			if again, err := ReadRequest(r.AppendPack(nil)); err != nil || again != r {
				t.Errorf("request %+v became %+v: %v", r, again, err)
			}
		}
		if c, err := ReadCertificate(b); err == nil {
			if again, err := ReadCertificate(c.AppendPack(nil)); err != nil ||
				!bytes.Equal(again.AppendPack(nil), c.AppendPack(nil)) {
				t.Errorf("certificate %+v became %+v: %v", c, again, err)
			}
		}
	})
}
