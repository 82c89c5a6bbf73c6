// Package memory bounds what a process takes of its machine: the bytes that large requests may hold, and the room that
// the garbage collector is given.
package memory

import (
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// What all ports of a process may hold of large bodies and answers where the configuration does not say: a quarter of
// the memory that it may use, within these.
const (
	leastBudget = 64 << 20
	mostBudget  = 4 << 30
)

// NewBudget makes the budget of a process and exports it. bytes is the configuration's: 0 is by the memory, below
// 0 is none.
func NewBudget(bytes int, metrics *telemetry.Registry) *limit.Bytes {
	most := int64(bytes)
	if most < 0 {
		return nil
	}
	if most == 0 {
		most = min(max(int64(hostinfo.AllowedMemory()/4), leastBudget), mostBudget)
	}
	refused := metrics.Counter("request.memory.refused")
	budget := limit.NewBytes(most, func() { refused.Add(1) })
	of := func(pick func(limit.BytesStats) int64) func() float64 {
		return func() float64 { return float64(pick(budget.Stats())) }
	}
	metrics.Declare(telemetry.KindGauge, "request.memory.used", "Bytes of large requests and answers that are held now.")
	metrics.Declare(telemetry.KindGauge, "request.memory.high",
		"The most of them that were held at a time since the start.")
	metrics.Declare(telemetry.KindGauge, "request.memory.limit", "How many may be held.")
	metrics.Declare(telemetry.KindCounter, "request.memory.refused",
		"Requests that were refused since there was no room for them.")
	metrics.GaugeFunc("request.memory.used", of(func(s limit.BytesStats) int64 { return s.Used }))
	metrics.GaugeFunc("request.memory.high", of(func(s limit.BytesStats) int64 { return s.High }))
	metrics.GaugeFunc("request.memory.limit", of(func(s limit.BytesStats) int64 { return s.Most }))
	return budget
}
