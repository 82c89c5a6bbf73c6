package mesh

import (
	"errors"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func TestSubjects(t *testing.T) {
	for text, want := range map[string]Subject{
		"endpoints/dc1/web/":      {Kind: SubjectEndpoints, Datacenter: "dc1", Service: "web"},
		"endpoints/dc1/web/v2":    {Kind: SubjectEndpoints, Datacenter: "dc1", Service: "web", Subset: "v2"},
		"service/web":             {Kind: SubjectService, Service: "web"},
		"service/a%2Fb%20%25":     {Kind: SubjectService, Service: "a/b %"},
		"service/gr%C3%BC%C3%9Fe": {Kind: SubjectService, Service: "grüße"},
		"upstream/dc1/web///":     {Kind: SubjectUpstream, Datacenter: "dc1", Service: "web"},
		"upstream/dc2/web/http/1500/local": {Kind: SubjectUpstream, Datacenter: "dc2", Service: "web",
			Override: Override{"http", 1500 * time.Millisecond, "local"}},
		"upstream/dc1/web////east": {Kind: SubjectUpstream, Datacenter: "dc1", Service: "web", Peer: "east"},
		"roots":                    {Kind: SubjectRoots},
		"passages":                 {Kind: SubjectPassages},
	} {
		got, err := ParseSubject(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if got := want.String(); got != text {
			t.Errorf("%+v is spelled %s, want %s", want, got, text)
		}
	}
}

func TestRefusedSubjects(t *testing.T) {
	for _, text := range []string{"", "/", "root", "roots/", "service", "service/", "service/a/b", "service/%61",
		"service/a b", "service/%", "service/%00", "service/%0a", "service/%ff",
		"endpoints/dc1/web", "endpoints//web/", "endpoints/dc1//", "endpoints/dc1/web/v/x", "upstream/dc1/web//",
		"upstream/dc1/web////", "upstream/dc1/web////east/", "passages/", "upstream/dc1/web/smtp//",
		"upstream/dc1/web//0/", "upstream/dc1/web//05/", "upstream/dc1/web//-5/", "upstream/dc1/web//99999999999999999999/",
		"upstream/dc1/web///remote2", "Roots",
		"service/" + strings.Repeat("a", 513), strings.Repeat("a", 4000)} {
		if s, err := ParseSubject(text); err == nil || errkind.Of(err) != errkind.Invalid {
			t.Errorf("%q is read as %+v, %v", text, s, errors.Unwrap(err))
		}
	}
}

func FuzzSubject(f *testing.F) {
	for _, s := range []string{"endpoints/dc1/web/v2", "service/a%2Fb", "upstream/dc2/web/http/1500/local", "roots",
		"service/%C3%28", "upstream/dc1/web////east"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSubject(text)
		if err != nil {
			return
		}
		if s.String() != text {
			t.Errorf("%q is spelled %q", text, s.String())
		}
	})
}
