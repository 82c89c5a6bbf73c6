package propagation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/curve"
	"corbel.dev/corbel/bench/sidecars"
)

func shape(t *testing.T, nodes, proxies, services int) *propFleet {
	t.Helper()
	o := &PropagationOptions{Nodes: nodes, Proxies: proxies, Services: services, Options: bench.Options{Servers: 3}}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	return newPropFleet(o)
}

func TestFleetIsThePublishedOne(t *testing.T) {
	f := shape(t, 10000, 178000, 3000)
	instances := map[string]int{}
	seen := map[string]bool{}
	for _, h := range f.all {
		if n := len(h.Proxies); n < 17 || n > 18 {
			t.Fatalf("%s has %d proxies", h.Node, n)
		}
		if seen[h.Bind] || !strings.HasPrefix(h.Bind, "127.") {
			t.Fatalf("%s answers at %s", h.Node, h.Bind)
		}
		seen[h.Bind] = true
		here := map[string]bool{}
		for _, p := range h.Proxies {
			instances[p.Service]++
			if here[p.Service] {
				t.Fatalf("%s has %s twice", h.Node, p.Service)
			}
			here[p.Service] = true
			if seen[p.ID] {
				t.Fatalf("two instances are called %s", p.ID)
			}
			seen[p.ID] = true
		}
	}
	if len(instances) != 3000 {
		t.Fatalf("%d services, want 3000", len(instances))
	}
	for name, n := range instances {
		if want := tierInstances[name[4]-'1']; n != want {
			t.Fatalf("%s has %d instances, want %d", name, n, want)
		}
	}
}

func TestSmallFleetsHaveEveryProxy(t *testing.T) {
	for _, c := range [][3]int{{20, 200, 30}, {1, 1, 3}, {7, 1000, 9}, {3, 50, 300}} {
		n := 0
		for _, h := range shape(t, c[0], c[1], c[2]).all {
			n += len(h.Proxies)
		}
		if n != c[1] {
			t.Errorf("%v: %d proxies", c, n)
		}
	}
}

func TestRegistrationsAreTransactions(t *testing.T) {
	f := shape(t, 7, 1000, 9)
	ops := 0
	for _, body := range f.registrations() {
		var list []map[string]any
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatalf("%v in %.200s", err, body)
		}
		if len(list) > 128 {
			t.Fatalf("%d operations in one transaction", len(list))
		}
		ops += len(list)
	}
	if ops != 7+2*1000 {
		t.Errorf("%d operations, want a node each and two services for each proxy", ops)
	}
	for _, body := range [][]byte{f.commonRegistration(3, "critical"), []byte(sidecarJSON(f.all[0].Proxies[0]))} {
		if !json.Valid(body) {
			t.Errorf("no JSON: %s", body)
		}
	}
}

func TestPropagationOptionsNameTheFlag(t *testing.T) {
	for want, o := range map[string]PropagationOptions{
		"--change":   {Change: "weather"},
		"--nodes":    {Nodes: -1},
		"--proxies":  {Nodes: 10, Proxies: 9},
		"--faults":   {Faults: "stall=1"},
		"--deadline": {Deadline: time.Millisecond},
		"--target":   {Options: bench.Options{Target: "x:1"}},
	} {
		if err := o.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that names %s, got %v", want, err)
		}
	}
	got, err := parseFaults(" stall=1%, reset=2.5% ")
	if err != nil || got != (faultShares{0.01, 0.025}) {
		t.Errorf("faults: %+v, %v", got, err)
	}
	for _, bad := range []string{"stall", "x=1%", "stall=90%", "reset=-1%"} {
		if _, err := parseFaults(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestARoundCountsTheAffectedApart(t *testing.T) {
	f := shape(t, 2, 4, 3)
	const t0 = int64(1e9)
	at := []int64{t0 + 1e6, t0 + 3e6, 0, t0 + 9e6}
	var r roundResult
	if err := r.count(f, at, t0, map[int]bool{1: true}); err != nil {
		t.Fatal(err)
	}
	if r.Missing != 1 || r.Count != 4 || r.Max != 9 || r.Unaffected.Max != 3 || r.Affected.Missing != 1 ||
		r.Affected.Max != 9 {
		t.Errorf("%+v, unaffected %+v, affected %+v", r.Stats, r.Unaffected, r.Affected)
	}
	if err := new(roundResult).count(f, []int64{1, 1, 1, 1}, t0, nil); err == nil {
		t.Error("an arrival before the change was taken")
	}
}

func TestPropagationReports(t *testing.T) {
	p := &Propagation{Setup: Setup{Change: "deregister", How: "it is <deregistered>", Nodes: 2, Proxies: 4, Servers: 3,
		Faults: "stall=1%"},
		runs: []curve.Series{{Name: "round 1", Sorted: []time.Duration{time.Millisecond}}}}
	with := curve.Stats{Max: 7}
	p.Rounds = []PropagationRound{{Stats: curve.Stats{P50: 1, P90: 2, P99: 3, P999: 4, Max: 5, Missing: 6},
		Affected: &with}}
	var b bytes.Buffer
	if err := p.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct{ Rounds []map[string]any }
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for i, field := range []string{"p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms", "missing"} {
		if fmt.Sprint(got.Rounds[0][field]) != fmt.Sprint(i+1) {
			t.Errorf("%s is %v, want %d", field, got.Rounds[0][field], i+1)
		}
	}
	if b.Reset(); p.WriteText(&b) != nil || !strings.Contains(b.String(), "with fault") {
		t.Errorf("the text lacks the affected ones: %s", b.String())
	}
	file := filepath.Join(t.TempDir(), "curve.html")
	if err := p.draw(file); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(page), "it is &lt;deregistered&gt;") {
		t.Errorf("the page: %v, %.300s", err, page)
	}
}

// TestSuspectsExplain: of each host with a proxy that lacks a change, or had it too early, one is told of.
func TestSuspectsExplain(t *testing.T) {
	all := []propHost{{Proxies: make([]propProxy, 2)}, {Proxies: make([]propProxy, 3)}, {Proxies: make([]propProxy, 1)}}
	proxies, hosts := suspects(all, []int64{1500, 1001, 1200, 0, 990, 999}, 1000)
	if fmt.Sprint(proxies, hosts) != "[3 5] [1 2]" {
		t.Errorf("suspects: %v of hosts %v", proxies, hosts)
	}
	got := traceLine(sidecars.Trace{Node: "h1", Proxy: "p", Seen: []sidecars.Sighting{
		{At: 999_000, Version: 1, Marker: "x"},
		{At: 3_000_000, Version: 2, Marker: "-x", Fits: true}}}, 1_000_000)
	if want := "p of h1 got: -1µs version 00000001, not what was waited for (x); 2ms version 00000002, what was " +
		"waited for (-x)"; got != want {
		t.Errorf("told: %s", got)
	}
}
