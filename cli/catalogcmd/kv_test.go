package catalogcmd

import (
	"bytes"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// TestKeyTrends: values that are numbers, and how many keys there are, have their way beside them where somebody looks;
// elsewhere each byte stays as it is.
func TestKeyTrends(t *testing.T) {
	plain := func(v []byte) string { return string(v) }
	trends := &command.Trends{}
	var out bytes.Buffer
	for _, v := range []string{"100\n", "2.5e2", "soon", "50"} {
		out.Reset()
		pairs := []client.KVPair{{Key: "limit", Value: []byte(v)}, {Key: "name", Value: []byte("NaN")}}
		if err := writePairs(&out, pairs, false, plain, trends); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := out.String(), "limit:50  ▂█▁\nname:NaN\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	if err := writePairs(&out, []client.KVPair{{Key: "limit", Value: []byte("100\n")}}, false, plain, nil); err != nil ||
		out.String() != "limit:100\n\n" {
		t.Errorf("elsewhere: %q, %v", &out, err)
	}
	for _, c := range []struct {
		count  bool
		trends *command.Trends
		want   string
	}{{false, nil, "a\nb\n"}, {true, nil, "2\n"}, {false, &command.Trends{}, "a\nb\n2 keys  ▁█\n"},
		{true, &command.Trends{}, "2  ▁█\n"}} {
		say := keyNames(c.count, c.trends)
		for _, keys := range [][]string{{"a"}, {"a", "b"}} {
			out.Reset()
			if err := say(&out, keys); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != c.want {
			t.Errorf("count %v: %q, want %q", c.count, &out, c.want)
		}
	}
}
