package jobsplane

import (
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/consumption"
)

// Consumption tells what each group of a job held in [from, to), for the usage plane. Only the leader's answer is
// complete: ask Leads first.
func (p *Plane) Consumption(from, to time.Time,
	tell func(namespace, job, group string, mhzSeconds, mbSeconds uint64, allocs []string),
) {
	list := p.store.View().State.Allocations()
	for _, r := range consumption.Between(list, jobs.Time(from.UnixNano()), jobs.Time(to.UnixNano())) {
		ids := make([]string, len(r.Allocs))
		for i, id := range r.Allocs {
			ids[i] = id.String()
		}
		tell(r.Namespace, r.Job, r.Group, r.MHzSeconds, r.MBSeconds, ids)
	}
}
