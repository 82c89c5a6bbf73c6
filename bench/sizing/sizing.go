// Package sizing is the bench that tells what servers a fleet needs. It measures samples of the fleet's parts on this
// machine (a catalog, its changes, watchers, proxies, leases, monitoring agents), takes from each what one more of the
// part costs, and adds the parts up. What it cannot measure, how often things change, it assumes and says so.
//
// The sum is pure: see Sum. Nothing here is safe for concurrent use.
package sizing

import (
	"errors"
	"fmt"
	"math"
)

// Fleet is what is asked about. Zero means none of it.
type Fleet struct {
	Nodes    int `json:"nodes"`
	Services int `json:"services"` // instances, each with two thirds of a check
	Watchers int `json:"watchers"` // blocking queries, each of a service of ten instances
	Proxies  int `json:"proxies"`
	Leases   int `json:"leases"` // of secrets
	Agents   int `json:"agents"` // of the monitor plane
	// ChangesPerSecond is how often something of the catalog changes: 500 for 10,000 nodes unless told.
	ChangesPerSecond float64 `json:"changes_per_second"`
}

// The bounds of a fleet; past them it is more clusters than one.
const (
	mostNodes = 100_000
	mostUnits = 10_000_000
	// nodesPerChange is for how many nodes something changes each second, as in "bench fleet".
	nodesPerChange = 20
)

// complete fills in what follows from the rest, and reports all that is wrong.
func (f *Fleet) complete() error {
	var errs []error
	for _, v := range []struct {
		flag string
		n    int
		most int
	}{{"nodes", f.Nodes, mostNodes}, {"services", f.Services, mostUnits}, {"watchers", f.Watchers, mostUnits},
		{"proxies", f.Proxies, mostUnits}, {"leases", f.Leases, mostUnits}, {"agents", f.Agents, mostUnits}} {
		if v.n < 0 || v.n > v.most {
			errs = append(errs, fmt.Errorf("--%s: must be between 0 and %d, not %d", v.flag, v.most, v.n))
		}
	}
	if f.ChangesPerSecond < 0 || f.ChangesPerSecond > 1e6 {
		errs = append(errs, fmt.Errorf("--changes: must be between 0 and 1000000, not %g", f.ChangesPerSecond))
	}
	if f.Nodes+f.Services+f.Watchers+f.Proxies+f.Leases+f.Agents == 0 {
		errs = append(errs, errors.New("--nodes, --services, --watchers, --proxies, --leases or --agents: at least one of "+
			"them must be above 0"))
	}
	if (f.Services > 0 || f.Watchers > 0 || f.Proxies > 0) && f.Nodes == 0 {
		errs = append(errs, errors.New("--nodes: must be above 0, because services, watchers and proxies are on nodes"))
	}
	if f.Proxies > 0 && f.Proxies < f.Nodes {
		errs = append(errs, fmt.Errorf("--proxies: must be 0, or at least one for each of the %d nodes, not %d", f.Nodes,
			f.Proxies))
	}
	if f.ChangesPerSecond == 0 {
		f.ChangesPerSecond = float64(f.Nodes) / nodesPerChange
	}
	return errors.Join(errs...)
}

// Part is what a part of the fleet costs a server, by a sample.
type Part struct {
	What string `json:"what"`
	// Units of the fleet, and Sample that were measured.
	Units  int `json:"units"`
	Sample int `json:"sample"`
	// BytesEach is the memory of one more; CPUMicros the processor time of one operation, of which there are PerSecond,
	// each with Fsyncs.
	BytesEach float64 `json:"bytes_each"`
	CPUMicros float64 `json:"cpu_micros"`
	PerSecond float64 `json:"per_second"`
	Fsyncs    float64 `json:"fsyncs_each"`
	// From is the bench that measures the same for itself, Assumes what was not measured.
	From    string `json:"from"`
	Assumes string `json:"assumes,omitempty"`
}

// Bytes is the memory of all units.
func (p Part) Bytes() float64 { return math.Max(p.BytesEach, 0) * float64(p.Units) }

// Cores is the processor time that all of it takes in a second.
func (p Part) Cores() float64 { return math.Max(p.CPUMicros, 0) * p.PerSecond / 1e6 }

// IOPS is how often the disk must sync in a second.
func (p Part) IOPS() float64 { return p.Fsyncs * p.PerSecond }

// Line is what each server needs.
type Line struct {
	Cores       int     `json:"cores"`
	MemoryBytes int64   `json:"memory_bytes"`
	IOPS        int     `json:"disk_iops"` // fsyncs a second that the disk must be able to do
	UsedCores   float64 `json:"used_cores"`
	UsedBytes   int64   `json:"used_bytes"`
	// Lacks is what this machine has too little of for one such server: cores, memory, disk.
	Lacks []string `json:"lacks,omitempty"`
}

// Machine is what the bench ran on; zero is not known.
type Machine struct {
	Cores       int     `json:"cores"`
	MemoryBytes int64   `json:"memory_bytes"`
	Fsyncs      float64 `json:"fsyncs_per_second"`
}

// What is left free: half of the cores, so that a storm or the loss of a server does not make others wait; half of what
// is used again in memory, for the collector and for a start that reads a log; as much again of the disk's fsyncs.
const (
	coresFactor  = 2
	memoryFactor = 1.5
	diskFactor   = 2
	leastCores   = 2
	memoryStep   = 256 << 20
)

// Sum adds the parts up beside the memory of an empty server.
func Sum(parts []Part, empty int64, on Machine) Line {
	cores, bytes, iops := 0.0, float64(empty), 0.0
	for _, p := range parts {
		cores, bytes, iops = cores+p.Cores(), bytes+p.Bytes(), iops+p.IOPS()
	}
	l := Line{UsedCores: cores, UsedBytes: int64(bytes), Cores: max(leastCores, int(math.Ceil(cores*coresFactor))),
		MemoryBytes: int64(math.Ceil(bytes*memoryFactor/memoryStep)) * memoryStep, IOPS: int(math.Ceil(iops * diskFactor))}
	if on.Cores > 0 && l.Cores > on.Cores {
		l.Lacks = append(l.Lacks, "cores")
	}
	if on.MemoryBytes > 0 && l.MemoryBytes > on.MemoryBytes {
		l.Lacks = append(l.Lacks, "memory")
	}
	if on.Fsyncs > 0 && float64(l.IOPS) > on.Fsyncs {
		l.Lacks = append(l.Lacks, "disk")
	}
	return l
}
