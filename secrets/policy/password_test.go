package policy

import (
	"crypto/rand"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPasswords(t *testing.T) {
	for text, ok := range map[string]bool{
		`length = 20 rule "charset" { charset = "abc" }`:                                                          true,
		`{"length": 8, "rule": [{"charset": {"charset": "ab", "min_chars": 2}}, {"charset": {"charset": "19"}}]}`: true,
		"length = 12\nrule \"charset\" { charset = \"abcde\" min-chars = 1 }\nrule \"charset\" { charset = \"ÄÖ\" " +
			"min-chars = 3 }": true,
		``: false, `length = 20`: false, `length = 3 rule "charset" { charset = "abc" }`: false,
		`length = 101 rule "charset" { charset = "abc" }`:             false,
		`length = 4 rule "charset" { charset = "abc" min-chars = 5 }`: false,
		`length = 10 rule "charset" { charset = "" }`:                 false, `length = 10 rule "charset" { }`: false,
		`length = 10 rule "other" { charset = "abc" }`: false, `length = 10 rule "charset" { charset = "a\u0007" }`: false,
		`length = 1.5 rule "charset" { charset = "abc" }`:         false,
		`length = 10 size = 3 rule "charset" { charset = "abc" }`: false, `rule = 5`: false,
		`length = 10 rule "charset" { charset = "abc" min_chars = -1 }`: false,
	} {
		p, err := ParsePasswords(text)
		if (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		for range 50 {
			word, err := p.Generate(rand.Reader)
			if err != nil || utf8.RuneCountInString(word) != p.Length {
				t.Fatalf("%q gives %q, %v", text, word, err)
			}
			for _, c := range p.charsets {
				if n := strings.Count(strings.Map(func(r rune) rune {
					if strings.ContainsRune(string(c.runes), r) {
						return '.'
					}
					return r
				}, word), "."); n < c.least {
					t.Errorf("%q has %d of %q", word, n, string(c.runes))
				}
			}
		}
	}
	seen := map[rune]int{} // each of a charset comes, at each end too
	p := DefaultPasswords()
	for range 2000 {
		word, err := p.Generate(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		seen[rune(word[0])]++
	}
	if len(seen) < len(p.all)-2 {
		t.Errorf("%d of %d characters begin a password", len(seen), len(p.all))
	}
}

func FuzzPasswords(f *testing.F) {
	f.Add(`length = 20 rule "charset" { charset = "abc" min-chars = 1 }`)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePasswords(text); err == nil {
			if word, err := p.Generate(rand.Reader); err != nil || utf8.RuneCountInString(word) != p.Length {
				t.Errorf("%q gives %q, %v", text, word, err)
			}
		}
	})
}
