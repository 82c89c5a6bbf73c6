// Package consumption adds up what allocations held of their nodes in a span of time: state in, amounts out. What was
// granted counts, whether tasks used it or not, from the start of the first task to the end of the last one. Two
// servers with the same state say the same of a span, and spans that meet add up.
package consumption

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
)

// Row is what a group of a job held in a span.
type Row struct {
	Namespace, Job, Group string
	MHzSeconds, MBSeconds uint64    // rounded to the nearest
	Allocs                []jobs.ID // that ran in the span, in the order of their ids
}

// Between adds up [from, to), in the order of namespace, job and group.
func Between(list iter.Seq[*jobs.Allocation], from, to jobs.Time) []Row {
	rows := map[[3]string]*Row{} // sums are of milliseconds until the end
	for a := range list {
		held, ok := overlap(a, from, to)
		if !ok || a.Grant == nil {
			continue
		}
		key := [3]string{a.Job.Namespace, a.Job.ID, a.Group}
		r := rows[key]
		if r == nil {
			r = &Row{Namespace: key[0], Job: key[1], Group: key[2]}
			rows[key] = r
		}
		r.MHzSeconds += uint64(max(a.Grant.CPU, 0)) * held
		r.MBSeconds += uint64(max(a.Grant.MemoryMB, 0)) * held
		r.Allocs = append(r.Allocs, a.ID)
	}
	out := make([]Row, 0, len(rows))
	for _, r := range rows {
		r.MHzSeconds, r.MBSeconds = (r.MHzSeconds+500)/1000, (r.MBSeconds+500)/1000
		slices.SortFunc(r.Allocs, func(a, b jobs.ID) int { return slices.Compare(a[:], b[:]) })
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Group, b.Group))
	})
	return out
}

// overlap is how many milliseconds of a span an allocation ran.
func overlap(a *jobs.Allocation, from, to jobs.Time) (held uint64, ok bool) {
	start, end := a.Client.StartedAt, to
	if start == 0 {
		return 0, false
	}
	if a.ClientTerminal() {
		// Of a node that is lost nobody tells when it ended: the last change is the latest that it can be.
		end = min(to, cmp.Or(a.Client.FinishedAt, a.ModifyTime))
	}
	if start = max(start, from); start >= end {
		return 0, false
	}
	const ms = jobs.Time(time.Millisecond)
	return uint64(end/ms - start/ms), true
}
