package mount

import (
	"strings"
	"testing"
)

func TestRoute(t *testing.T) {
	table := &Table{}
	for _, path := range []string{"secret/", "auth/token/", "a/b/c/", "sys/"} {
		if err := table.CheckNew(path); err != nil {
			t.Fatal(err)
		}
		table = table.With(&Entry{Path: path})
	}
	for path, want := range map[string]string{
		"secret/x": "secret/ x", "secret/x/y/": "secret/ x/y/", "secret/": "secret/ ", "secret": "secret/ ",
		"secrets/x": "none", "": "none",
		"auth/token/lookup": "auth/token/ lookup", "auth/other/x": "none", "auth": "none", "a/b/c/d": "a/b/c/ d",
		"a/b": "none", "a/b/c": "a/b/c/ ", "/secret/x": "none", "sys/": "sys/ ",
	} {
		got := "none"
		if e, rest := table.Route(path); e != nil {
			got = e.Path + " " + rest
		}
		if got != want {
			t.Errorf("%q goes to %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"secret/", "secret/below/", "a/b/", "a/", "x//y/", "../", "x/\n/", "/"} {
		if err := table.CheckNew(path); err == nil {
			t.Errorf("%q may be mounted", path)
		}
	}
	if e, _ := table.Without("secret/").Route("secret/x"); e != nil {
		t.Error("a removed mount still answers")
	}
	if e, _ := table.Route("secret/x"); e == nil {
		t.Error("removing changed the table it was made from")
	}
	if n := testing.AllocsPerRun(100, func() { table.Route("a/b/c/d/e") }); n != 0 {
		t.Errorf("routing allocates %v times", n)
	}
}

func BenchmarkRoute(b *testing.B) {
	table := &Table{}
	for i := range 1000 {
		table = table.With(&Entry{Path: "m" + strings.Repeat("x", i) + "/"})
	}
	b.ReportAllocs()
	for b.Loop() {
		table.Route("mxxxxxxxx/a/b/c")
	}
}
