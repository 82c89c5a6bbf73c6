package ldapsecrets

import (
	"fmt"
	"testing"
)

func TestParseLDIF(t *testing.T) {
	for text, want := range map[string]string{
		"dn: cn=a,dc=x\ncn: a\nsn:: Yg==\n":                           "[{cn=a,dc=x add [{cn a} {sn b}] [] {  false}}]",
		"version: 1\n# who\ndn: cn=a,\n dc=x\r\nchangetype: delete\n": "[{cn=a,dc=x delete [] [] {  false}}]",
		"dn: cn=a\nchangetype: modify\nadd: m\nm: 1\nm: 2\n-\ndelete: n\n-\n\n\n": "[{cn=a modify [] [{add m [1 2]} " +
			"{delete n []}] {  false}}]",
		"dn: cn=a\nchangetype: modrdn\nnewrdn: cn=b\ndeleteoldrdn: 0\n": "[{cn=a modrdn [] [] {cn=b  true}}]",
		"":                               "",
		"cn: a\n":                        "",
		"dn: cn=a\n":                     "",
		"dn: cn=a\nx\n":                  "",
		"dn: nonsense\n":                 "",
		"dn: cn=a\nchangetype: modify\n": "",
		"dn: cn=a\nchangetype: modify\nadd: m\nn: 1\n":     "",
		"dn: cn=a\nchangetype: replace\n":                  "",
		"dn: cn=a\nchangetype: delete\ncn: a\n":            "",
		"dn: cn=a\nchangetype: modrdn\ndeleteoldrdn: 1\n":  "",
		"dn: cn=a\njpegPhoto:< file:///etc/passwd\n":       "",
		"dn: cn=a\nsn:: !\n":                               "",
		"dn: cn=a\nchangetype: modrdn\nnewrdn: b\nx: y\n":  "",
		"dn: cn=a\nchangetype: modify\nincrement: m\nm: 1": "",
	} {
		got, err := parseLDIF(text)
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// FuzzLDIF: what a text holds ends no test, and what was read has a DN.
func FuzzLDIF(f *testing.F) {
	f.Add("dn: cn=a\nchangetype: modify\nadd: m\nm: 1\n-\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseLDIF(text)
		for _, c := range list {
			if err == nil && c.dn == "" {
				t.Errorf("%q: %v", text, list)
			}
		}
	})
}
