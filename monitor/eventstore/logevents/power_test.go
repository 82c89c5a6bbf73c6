package logevents

import (
	"context"
	"testing"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventstoretest"
)

// powerEvents commits round n of a fleet in step n.
type powerEvents struct {
	*Store
	found *eventstoretest.Fleet // what was there when it was opened
}

func openPowerEvents(fsys vfs.FS) (powertest.Store, error) {
	found, l := eventstoretest.Loaded()
	s, err := Open(config(fsys, "/e"), l)
	return powerEvents{s, found}, err
}

// after is the fleet after n rounds, and the batch of the last one: the same each time.
func (p powerEvents) after(n int) (*eventstoretest.Fleet, eventstore.Batch) {
	f := eventstoretest.NewFleet(5)
	var last eventstore.Batch
	for range n {
		last = round(f, p.Store)
	}
	return f, last
}

// Step implements powertest.Store.
func (p powerEvents) Step(n int) error {
	f, last := p.after(n)
	return p.Commit(context.Background(), []eventstore.Batch{last}, []uint64{f.Sequences[1]})
}

// Have implements powertest.Store.
func (p powerEvents) Have() (int, error) {
	n := int(p.found.Sequences[1] / perRound)
	want, _ := p.after(n)
	return n, want.Differs(p.found)
}

// TestPower: what the event store serves is on the disk, whatever fsync failed and whenever the process was killed
// before the power loss.
func TestPower(t *testing.T) {
	powertest.Run(t, powertest.Kind{Open: openPowerEvents, Steps: 20})
}
