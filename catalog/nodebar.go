package catalog

import (
	"encoding/json"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// NodeBar keeps a node out of the catalog that was removed by force: while its record is
// there, registrations under its name or its ID are refused. The record alone decides;
// that its hold is over is judged by the leader, which then takes it away.
type NodeBar struct {
	Node string // as it was registered
	ID   string // "" for a node without one
	Time time.Time
	Hold time.Duration
}

// Until is when the bar is to be lifted.
func (b *NodeBar) Until() time.Time { return b.Time.Add(b.Hold) }

// ReadNodeBar reads the bar of a record.
func ReadNodeBar(r *Record) (*NodeBar, error) {
	b := &NodeBar{}
	if err := json.Unmarshal(r.Value, b); err != nil {
		return nil, errkind.E(errkind.Corrupt, "bar of node "+r.Key, err)
	}
	return b, nil
}
