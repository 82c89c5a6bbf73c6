package rowfilter

import (
	"strings"
	"testing"
)

type service struct {
	name, status string
	tags         []string
}

func (s service) Words() []string { return append([]string{s.name, s.status}, s.tags...) }

func (s service) Values(field string) []string {
	switch field {
	case "status":
		return []string{s.status}
	case "tag":
		return s.tags
	}
	return nil
}

func TestMatch(t *testing.T) {
	t.Parallel()
	rows := []service{{"web", "passing", []string{"v1"}}, {"web-admin", "critical", []string{"v2", "two words"}},
		{"db", "passing", nil}}
	for text, want := range map[string]string{
		"":                      "web web-admin db",
		"web":                   "web web-admin",
		"WEB":                   "web web-admin",
		"-web":                  "db",
		"web -passing":          "web-admin",
		"status:passing":        "web db",
		"-status:passing":       "web-admin",
		"status:pass":           "",
		"status:pass*":          "web db",
		"status:*i*al":          "web-admin",
		"status:p*p*p":          "",
		`tag:"two words"`:       "web-admin",
		"tag:v* -tag:v1":        "web-admin",
		"tag:*":                 "web web-admin",
		"-tag:*":                "db",
		"w*b":                   "web",
		"  web \t status:*cal ": "web-admin",
	} {
		f, err := Parse(text, "status", "tag")
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, r := range rows {
			if f.Match(r) {
				got = append(got, r.name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"staus:x":                         `no field "staus": there are status, tag`,
		`tag:"x`:                          "a quotation mark is not closed",
		"tag:":                            "a term is empty",
		"-":                               "a term is empty",
		strings.Repeat("a ", MaxTerms+1):  "the filter has more than 32 terms",
		strings.Repeat("a", MaxBytes+100): "the filter has 1124 bytes, more than 1024",
	} {
		if _, err := Parse(text, "status", "tag"); err == nil || err.Error() != want {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}

// FuzzParse: whatever is typed, a filter is made or refused, and asking it ends.
func FuzzParse(f *testing.F) {
	f.Add(`web -status:pass* tag:"a b"`)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Parse(text, "status", "tag"); err == nil {
			p.Match(service{"web", "passing", []string{"v1", text}})
		}
	})
}
