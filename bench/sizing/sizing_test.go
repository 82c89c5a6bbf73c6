package sizing

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSum(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		what  string
		parts []Part
		empty int64
		on    Machine
		want  Line
	}{
		{"nothing", nil, 100 * mib, Machine{}, Line{Cores: 2, MemoryBytes: 256 * mib, UsedBytes: 100 * mib}},
		{"memory adds up, and half of it again is left", []Part{{Units: 1000, BytesEach: mib / 2}, {Units: 10,
			BytesEach: 10 * mib}}, 100 * mib, Machine{},
			Line{Cores: 2, MemoryBytes: 1280 * mib, UsedBytes: 700 * mib}}, // 1050 in steps of 256
		{"half of the cores are left", []Part{{CPUMicros: 500, PerSecond: 3000}}, 0, Machine{},
			Line{Cores: 3, UsedCores: 1.5}},
		{"fsyncs of operations, twice", []Part{{PerSecond: 100, Fsyncs: 0.5}, {PerSecond: 10, Fsyncs: 1}}, 0, Machine{},
			Line{Cores: 2, IOPS: 120}},
		{"noise below zero costs nothing", []Part{{Units: 5, BytesEach: -mib, CPUMicros: -3, PerSecond: 1e6}}, mib, Machine{},
			Line{Cores: 2, MemoryBytes: 256 * mib, UsedBytes: mib}},
		{"what the machine lacks", []Part{{Units: 1, BytesEach: 1 << 30, CPUMicros: 1e6, PerSecond: 2, Fsyncs: 1}}, 0,
			Machine{Cores: 3, MemoryBytes: 1 << 30, Fsyncs: 3},
			Line{Cores: 4, MemoryBytes: 1536 * mib, UsedBytes: 1 << 30, UsedCores: 2, IOPS: 4,
				Lacks: []string{"cores", "memory", "disk"}}},
	} {
		got := Sum(c.parts, c.empty, c.on)
		if got.Cores != c.want.Cores || got.MemoryBytes != c.want.MemoryBytes || got.IOPS != c.want.IOPS ||
			got.UsedBytes != c.want.UsedBytes || got.UsedCores != c.want.UsedCores || !slices.Equal(got.Lacks, c.want.Lacks) {
			t.Errorf("%s: got %+v, want %+v", c.what, got, c.want)
		}
	}
}

func TestFleetIsChecked(t *testing.T) {
	for _, c := range []struct {
		fleet Fleet
		want  string // in the error; "" is none
	}{
		{Fleet{}, "--nodes, --services"},
		{Fleet{Nodes: 10}, ""},
		{Fleet{Leases: 10}, ""},
		{Fleet{Agents: 10}, ""},
		{Fleet{Nodes: -1, Agents: 1}, "--nodes: must be between 0 and 100000, not -1"},
		{Fleet{Services: 5}, "--nodes: must be above 0"},
		{Fleet{Nodes: 5, Proxies: 4}, "--proxies: must be 0, or at least one"},
		{Fleet{Nodes: 5, ChangesPerSecond: -1}, "--changes"},
		{Fleet{Leases: mostUnits + 1}, "--leases"},
	} {
		err := c.fleet.complete()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.fleet, err, c.want)
		}
	}
	f := Fleet{Nodes: 10000}
	if err := f.complete(); err != nil || f.ChangesPerSecond != 500 {
		t.Errorf("10,000 nodes: %v, %v changes/s", err, f.ChangesPerSecond)
	}
}

func TestReportTellsWhatItIsDerivedFrom(t *testing.T) {
	r := &Report{Bench: "size", Date: time.Unix(0, 0), EmptyBytes: 90 << 20,
		Fleet: Fleet{Nodes: 10, ChangesPerSecond: 0.5},
		Parts: []Part{{What: "watchers", Units: 4000, Sample: 2000, BytesEach: 11 << 10, CPUMicros: 40, PerSecond: 25,
			From: "corbel bench watch", Assumes: "ten instances"}}}
	r.Line = Sum(r.Parts, r.EmptyBytes, Machine{Cores: 1})
	var text, data bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 cores, 256 MiB of memory, a disk of 0 fsyncs/s", "THIS MACHINE HAS TOO LITTLE: cores",
		"watchers: 4000, of which 2000 were measured; 11.0 KiB each, 43 MiB", "25.0/s at 40 us",
		"measure it: corbel bench watch",
		"assumed: ten instances"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in:\n%s", want, text.String())
		}
	}
	var back Report
	if err := r.WriteJSON(&data); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || back.Parts[0] != r.Parts[0] || back.Line.Cores != 2 {
		t.Errorf("%v: %+v", err, back)
	}
}
