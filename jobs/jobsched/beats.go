package jobsched

import (
	"context"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/heartbeat"
	"corbel.dev/corbel/jobs/jobstore"
)

// beat notes heartbeats.
func (t *term) beat(ids []jobs.ID) (every time.Duration, unknown []jobs.ID, ok bool) {
	now := t.s.now()
	t.beats.Lock()
	defer t.beats.Unlock()
	return t.beats.Every(), t.beats.Beat(ids, now), true
}

// beatLoop marks nodes that are silent.
func (t *term) beatLoop(ctx context.Context) error {
	for t.pause(ctx, heartbeat.Tick) {
		t.beats.Lock()
		silent := t.beats.Expire(t.s.now())
		t.beats.Unlock()
		if len(silent) == 0 {
			continue
		}
		v := t.s.cfg.Store()
		c := &jobstore.Command{Head: t.s.head(jobstore.NodeEvent)}
		for _, id := range silent {
			u := v.State.Node(id)
			if u == nil || !alive(u.Node) {
				t.beats.Lock()
				t.beats.Forget(id)
				t.beats.Unlock()
				continue
			}
			c.Nodes.Duty = append(c.Nodes.Duty, jobstore.DutyWrite{ID: id, Status: statusOf(v, id),
				Message: "Node heartbeat missed"})
		}
		if len(c.Nodes.Duty) == 0 {
			continue
		}
		t.s.cfg.Meters.Silent.Add(uint64(len(c.Nodes.Duty)))
		t.s.cfg.Log.Warn("nodes are silent; their work is placed elsewhere", "nodes", len(c.Nodes.Duty), "first", silent[0])
		if _, err := t.s.cfg.Propose(ctx, c); err != nil && ctx.Err() == nil {
			t.s.cfg.Log.Warn("cannot mark silent nodes; trying again", "error", err)
		}
	}
	return nil
}

// statusOf is what a silent node becomes: disconnected while a group on it allows that.
func statusOf(v *jobstore.View, id jobs.ID) string {
	for a := range v.State.OnNode(id) {
		if a.Terminal() {
			continue
		}
		if g := a.Job.Group(a.Group); g != nil && g.Disconnect != nil && g.Disconnect.LostAfter > 0 {
			return jobs.NodeDisconnected
		}
	}
	return jobs.NodeDown
}
