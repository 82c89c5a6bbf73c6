package usageplane

import (
	"context"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/router"
)

// jobsPlane is what is needed of the jobs plane, where the process has one.
type jobsPlane interface {
	Leads() bool
	Consumption(from, to time.Time,
		tell func(namespace, job, group string, mhzSeconds, mbSeconds uint64, allocs []string))
}

const (
	// jobsSettle is how long after a minute's end nodes may still tell what happened in it.
	jobsSettle = 20 * time.Second
	// jobsAgain is how far a leader goes back at first: what its predecessor told are duplicates, by their ids.
	jobsAgain = 10 * time.Minute
)

// consumed tells what allocations of the jobs plane held, minute by minute. Events have ids and no producer, so that
// all leaders' copies of one come to the same part of the log, which keeps one. One goroutine uses it.
type consumed struct {
	p    *Plane
	next time.Time // the minute that is told next; zero while this server does not lead
}

// tell tells the minutes that are over. What is not taken is told again, minute by minute: nothing waits in memory.
func (c *consumed) tell(ctx context.Context) {
	from := plane.Find[jobsPlane](c.p.d.Planes)
	if from == nil || !from.Leads() {
		c.next = time.Time{}
		return
	}
	now := c.p.d.Clock.Now()
	if first := now.Add(-jobsAgain).Truncate(time.Minute); c.next.IsZero() {
		c.next = first
	}
	for to := c.next.Add(time.Minute); !to.Add(jobsSettle).After(now); to = c.next.Add(time.Minute) {
		products := c.p.Definitions.View().Products
		items := slices.DeleteFunc(consumedItems(from, c.next), func(i cloudevents.Item) bool {
			_, is := products.Get(i.Product)
			return !is // an operator has deleted it
		})
		for len(items) > 0 {
			n := min(len(items), ownBatch)
			answer, err := c.p.Router.Take(ctx, &router.Batch{Items: items[:n]})
			if err != nil {
				c.p.d.Log.Debug("usage: events of jobs wait", "error", err)
				return
			}
			if len(answer.Rejected) > 0 {
				c.p.d.Log.Warn("usage: events of jobs are refused", "count", len(answer.Rejected),
					"first", answer.Rejected[0].Error)
			}
			items = items[n:]
		}
		c.next = to
	}
}

// consumedItems are the events of the minute that begins at from.
func consumedItems(jobs jobsPlane, from time.Time) (list []cloudevents.Item) {
	minute := strconv.FormatInt(from.Unix()/60, 10)
	jobs.Consumption(from, from.Add(time.Minute), func(namespace, job, group string, mhz, mb uint64, allocs []string) {
		tags := []usage.Field{{Name: "job", Value: job}, {Name: "group", Value: group}}
		add := func(product, id string) *cloudevents.Item {
			list = append(list, cloudevents.Item{Event: usage.Event{ID: product + "/" + minute + "/" + id,
				Source: "corbel/jobs", Tenant: namespace, Product: product, Time: from.UnixNano(), Tags: tags}})
			return &list[len(list)-1]
		}
		for _, id := range allocs {
			add("allocations", id).Identity = []usage.Field{{Name: "id", Value: id}}
		}
		whose := strconv.Itoa(len(job)) + "/" + job + "/" + group // names may hold any separator
		cpu := add("cpu_mhz_seconds", whose)
		cpu.Value, cpu.HasValue = usage.Uint(mhz), true
		memory := add("memory_mb_seconds", whose)
		memory.Value, memory.HasValue = usage.Uint(mb), true
	})
	return list
}
