package ownserver

import "corbel.dev/corbel/telemetry"

// Stage is how long changes took to a stage, over all that this server's proxies have been sent.
type Stage struct {
	Type   string     `json:"type"`
	Stage  string     `json:"stage"`
	Count  uint64     `json:"count"`
	P50    float64    `json:"p50"` // ms
	P99    float64    `json:"p99"`
	Max    float64    `json:"max"`
	Bucket [][]uint64 `json:"buckets"` // from, to, in µs, and how many
}

// Stages are the timings of the mesh of this process.
func Stages(r *telemetry.Registry) []Stage {
	rows := []Stage{}
	for _, s := range r.Series() {
		if s.Declared || s.Name != "mesh.propagation" && s.Name != "mesh.received" && s.Name != "mesh.acknowledged" {
			continue
		}
		var b telemetry.Buckets
		s.TimingTotals(&b)
		if b.Count == 0 {
			continue
		}
		row := Stage{Stage: s.Name[len("mesh."):], Count: b.Count, P50: b.Quantile(0.5) / 1e6,
			P99: b.Quantile(0.99) / 1e6, Max: b.Quantile(1) / 1e6, Bucket: [][]uint64{}}
		for _, l := range s.Labels {
			switch l.Name {
			case "type":
				row.Type = l.Value
			case "stage":
				row.Stage = l.Value
			}
		}
		b.Each(func(low, high, count uint64) {
			row.Bucket = append(row.Bucket, []uint64{low / 1000, high / 1000, count})
		})
		rows = append(rows, row)
	}
	return rows
}
