package doctorcmd

import (
	"slices"
	"testing"

	"corbel.dev/corbel/doctor"
)

// TestJoin: another cluster's members are told apart from this one's, also where they have the same names.
func TestJoin(t *testing.T) {
	member := func(name, addr string) doctor.Evidence {
		return doctor.Evidence{Identity: doctor.Identity{Member: name, Addresses: []string{addr}}}
	}
	names := func(c *doctor.Cluster) (out []string) {
		for _, e := range c.Members {
			out = append(out, e.Cluster+"|"+e.Member)
		}
		return out
	}
	for _, tc := range []struct {
		what string
		more []doctor.Evidence
		want []string
	}{
		{"another cluster", []doctor.Evidence{member("server-1", "10.0.1.1:8500"), member("other", "10.0.1.2:8500")},
			[]string{"|server-1", "|server-2", "B|B server-1", "B|other"}},
		{"another member of this one", []doctor.Evidence{member("server-2", "10.0.0.2:8500"),
			member("server-3", "10.0.0.3:8500")},
			[]string{"|server-1", "|server-2", "|server-3"}},
	} {
		all := &doctor.Cluster{Members: []doctor.Evidence{member("server-1", "10.0.0.1:8500"),
			member("server-2", "10.0.0.2:8500")}}
		join(all, &doctor.Cluster{Members: tc.more}, "B")
		if got := names(all); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}
