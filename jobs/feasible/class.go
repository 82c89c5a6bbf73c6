package feasible

import (
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"

	"corbel.dev/corbel/jobs"
)

// ClassOf is the computed class of a node: nodes of one class are equal for every constraint that does
// not look at unique properties.
func ClassOf(n *jobs.Node) uint64 {
	h := fnv.New64a()
	word := func(list ...string) {
		for _, s := range list {
			io.WriteString(h, s)
			h.Write([]byte{0})
		}
		h.Write([]byte{1})
	}
	word(n.Datacenter, n.InPool(), n.Class)
	for _, m := range []map[string]string{n.Attributes, n.Meta} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !uniqueKey(k) {
				word(k, m[k])
			}
		}
		word()
	}
	c := &n.Capacity
	number := func(list ...int64) {
		for _, x := range list {
			io.WriteString(h, strconv.FormatInt(x, 36))
			h.Write([]byte{0})
		}
		h.Write([]byte{1})
	}
	number(c.Total.CPU, c.Total.MemoryMB, c.Total.DiskMB, c.Reserved.CPU, c.Reserved.MemoryMB, c.Reserved.DiskMB,
		int64(c.TotalCores), int64(len(c.Cores)), int64(c.MinPort), int64(c.MaxPort))
	word(c.Modes...)
	for _, d := range c.Devices {
		word(d.Vendor, d.Type, d.Name)
		number(int64(len(d.Instances)))
		for _, k := range slices.Sorted(maps.Keys(d.Attributes)) {
			word(k, d.Attributes[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(n.Drivers)) {
		if d := n.Drivers[k]; d.Detected && d.Healthy {
			word("driver", k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(n.HostVolumes)) {
		word("volume", k, strconv.FormatBool(n.HostVolumes[k].ReadOnly))
	}
	return h.Sum64()
}
