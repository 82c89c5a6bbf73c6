package jobsplane

import (
	"context"
	"strconv"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobtally"
	"corbel.dev/corbel/jobs/state"
	"corbel.dev/corbel/telemetry"
)

const (
	// marksEvery is how often jobs are counted for dashboards, when there was a commit meanwhile, which is looked for
	// each marksLook: what happens after quiet is told soon.
	marksEvery, marksLook = 10 * time.Second, time.Second
	// maxMarks bounds the deployments that dashboards show, and maxCounted the groups: both stay below the series that a
	// name may have.
	maxMarks, maxCounted = 200, 900
)

// marks exports what every server can tell of jobs: their groups' allocations by state, and when deployments began and
// ended, which dashboards draw as annotations. One goroutine uses it.
type marks struct {
	p            *Plane
	index        uint64 // of the State that was counted last
	began, ended *telemetry.GaugeSet
	status       map[string]*telemetry.Gauge
	groups       map[string]*telemetry.GaugeSet
	untold       *telemetry.Gauge
}

// summaries are the names of what is counted, in Nomad's words.
var summaries = []string{"queued", "starting", "running", "complete", "failed", "lost", "unknown"}

func newMarks(p *Plane) *marks {
	m := &marks{p: p, began: p.metrics.GaugeSet("deployment.start_ms"), ended: p.metrics.GaugeSet("deployment.end_ms"),
		status: map[string]*telemetry.Gauge{}, groups: map[string]*telemetry.GaugeSet{},
		untold: p.metrics.Gauge("job_summary.untold")}
	p.metrics.Declare(telemetry.KindGauge, "job_summary.untold", "Groups beyond those that job_summary names.")
	for _, name := range []string{"pending", "running", "dead"} {
		m.status[name] = p.metrics.Gauge("job_status." + name)
	}
	for _, name := range summaries {
		m.groups[name] = p.metrics.GaugeSet("job_summary." + name)
	}
	return m
}

// run counts until ctx ends.
func (m *marks) run(ctx context.Context) error {
	var told time.Time
	for {
		now := m.p.d.Clock.Now()
		if s := m.p.store.View().State; s.Index() != m.index && now.Sub(told) >= marksEvery {
			m.index, told = s.Index(), now
			m.tell(s)
		}
		timer := m.p.d.Clock.NewTimer(marksLook)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (m *marks) tell(s *state.State) {
	var began, ended []telemetry.Point
	for _, d := range jobtally.Deployments(s, maxMarks) {
		labels := []string{"namespace", d.Namespace, "job", d.ID, "version", strconv.FormatUint(d.Version, 10)}
		began = append(began, telemetry.Point{Labels: labels, Value: millis(d.Began)})
		if d.Ended != 0 {
			ended = append(ended, telemetry.Point{Labels: append(labels[:len(labels):len(labels)], "status", d.Status),
				Value: millis(d.Ended)})
		}
	}
	m.began.Replace(began)
	m.ended.Replace(ended)
	all := jobtally.Count(s, maxCounted)
	m.status["pending"].Set(float64(all.Pending))
	m.status["running"].Set(float64(all.Running))
	m.status["dead"].Set(float64(all.Dead))
	m.untold.Set(float64(all.Untold))
	points := map[string][]telemetry.Point{}
	for i := range all.Groups {
		g := &all.Groups[i]
		labels := []string{"namespace", g.Namespace, "job", g.Job, "task_group", g.Name}
		for i, n := range []int{g.Queued, g.Starting, g.Running, g.Complete, g.Failed, g.Lost, g.Unknown} {
			points[summaries[i]] = append(points[summaries[i]], telemetry.Point{Labels: labels, Value: float64(n)})
		}
	}
	for name, set := range m.groups {
		set.Replace(points[name])
	}
}

func millis(t jobs.Time) float64 { return float64(t / jobs.Time(time.Millisecond)) }
