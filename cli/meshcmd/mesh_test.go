package meshcmd

import (
	"bytes"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
)

// TestStatusTrends: what is watched has the way of each number beside it, a state that nobody is in any more too.
func TestStatusTrends(t *testing.T) {
	seen, trends := map[string]bool{}, &command.Trends{}
	var last string
	for _, a := range []statusAnswer{
		{Proxies: 4, States: map[string]int{"synced": 4}},
		{Proxies: 4, States: map[string]int{"synced": 2, "pending": 2},
			List: []proxyStatus{{Node: "n1", ID: "web-proxy", Service: "web", State: "pending", Pending: 3}}},
		{Proxies: 4, States: map[string]int{"synced": 3, "pending": 1},
			List: []proxyStatus{{Node: "n1", ID: "web-proxy", Service: "web", State: "pending", Pending: 1}}},
		{},
	} {
		var out bytes.Buffer
		a.keep(seen)
		if err := a.write(&out, trends); err != nil {
			t.Fatal(err)
		}
		if len(a.List) > 0 && !strings.Contains(out.String(), "TREND") {
			t.Errorf("no trend of the proxies:\n%s", &out)
		}
		last = out.String()
	}
	for _, want := range []string{"0  ███▁\n", "0  █▄▆▁\n", "0  █▄▁\n"} { // all, synced, pending
		if !strings.Contains(last, want) {
			t.Errorf("no %q in:\n%s", want, last)
		}
	}
	var once bytes.Buffer
	a := statusAnswer{Proxies: 1, States: map[string]int{"synced": 1}}
	a.keep(map[string]bool{})
	if err := a.write(&once, nil); err != nil || strings.Contains(once.String(), "▁") {
		t.Errorf("asked once: %v\n%s", err, &once)
	}
}

func TestTopologyTrends(t *testing.T) {
	var a topologyAnswer
	if err := command.Decode([]byte(`{"Services":{"web":2,"db":1},"Edges":[{"Source":"web","Destination":"db",`+
		`"Proxies":2,"Allowed":true,"Reason":"default policy"}]}`), &a); err != nil {
		t.Fatal(err)
	}
	trends := &command.Trends{}
	var out bytes.Buffer
	for _, n := range []int{1, 2} {
		out.Reset()
		a.Edges[0].Proxies = n
		if err := writeTopology(&out, &a, trends); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Split(out.String(), "\n"); !strings.HasSuffix(lines[0], "TREND") ||
		!strings.HasSuffix(lines[1], "default policy  ▁█") || !strings.HasSuffix(lines[2], "▁▁") {
		t.Errorf("\n%s", &out)
	}
}
