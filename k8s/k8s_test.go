package k8s

import (
	"slices"
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	for text, want := range map[string][]string{"": nil, " , ": nil, "a, b": {"a", "b"}, `a\,b,c`: {"a,b", "c"}} {
		if got := List(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Whatever a cluster says, it is read or refused, and annotations are split without a loss.
func FuzzDecode(f *testing.F) {
	f.Add(`{"metadata":{"name":"web","annotations":{"consul.hashicorp.com/service-tags":"a,b"}},"spec":{"ports":[{"port":80}]}}`)
	f.Add(`{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":null}}],"ports":[{"name":null,"port":1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s Service
		var e EndpointSlice
		var n Node
		if Decode([]byte(text), &s) == nil {
			for _, item := range List(s.Metadata.Annotations[ServiceTags]) {
				if item == "" || item != strings.TrimSpace(item) {
					t.Errorf("a tag %q", item)
				}
			}
		}
		if Decode([]byte(text), &e) == nil {
			for i := range e.Endpoints {
				_ = e.Endpoints[i].Ready()
			}
		}
		if Decode([]byte(text), &n) == nil {
			_ = n.Address("InternalIP")
		}
	})
}
