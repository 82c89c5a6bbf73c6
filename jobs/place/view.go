package place

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
)

// View is a State with what a pass has placed and stopped on top of it. It belongs to one goroutine.
type View struct {
	State *state.State
	over  []*state.Use // by slot; nil: as in State
	// changes counts what was taken and given; tie is the chance that decides between equals, one draw for all.
	changes, tie uint64
}

// NewView begins with s.
func NewView(s *state.State) *View { return &View{State: s, over: make([]*state.Use, s.Slots())} }

// Use is the node of u as it is in the View.
func (v *View) Use(u *state.Use) *state.Use {
	if o := v.over[u.Slot]; o != nil {
		return o
	}
	return u
}

// Node returns a node as it is in the View, or nil.
func (v *View) Node(id jobs.ID) *state.Use {
	u := v.State.Node(id)
	if u == nil {
		return nil
	}
	return v.Use(u)
}

// own is u for changing.
func (v *View) own(u *state.Use) *state.Use {
	v.changes++
	if o := v.over[u.Slot]; o != nil {
		return o
	}
	next := *u
	v.over[u.Slot] = &next
	return &next
}

// Take puts a grant on a node, Give takes it away again.
func (v *View) Take(u *state.Use, g *jobs.Grant) *state.Use {
	o := v.own(u)
	o.Room.Take(g)
	return o
}

// Give is the opposite of Take.
func (v *View) Give(u *state.Use, g *jobs.Grant) *state.Use {
	o := v.own(u)
	o.Room.Give(g)
	return o
}

// Stop gives back what an allocation has; a node that is gone has nothing.
func (v *View) Stop(a *jobs.Allocation) {
	if u := v.Node(a.NodeID); u != nil && a.Counts() {
		v.Give(u, a.Grant)
	}
}

// Restore takes a Stop back.
func (v *View) Restore(a *jobs.Allocation) {
	if u := v.Node(a.NodeID); u != nil && a.Counts() {
		v.Take(u, a.Grant)
	}
}
