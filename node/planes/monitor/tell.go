package monitorplane

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// tellWithin bounds how long another plane waits for its event to be taken.
const tellWithin = 10 * time.Second

// TellResult makes a result of another plane's an event in the namespace default, of an entity that need not exist.
// status is 0, 1 (warning) or 2 (critical).
func (m *Plane) TellResult(ctx context.Context, entity, check string, status uint32, output string,
	handlers []string,
) error {
	const namespace = "default"
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	message, err := m.Group.Resources.Proxy(ctx, namespace, entity)
	if err != nil {
		return err
	}
	now := m.d.Clock.Now().Unix()
	e := &monitor.Event{Timestamp: now, Entity: new(monitor.Entity), Check: &monitor.Check{
		Meta: monitor.Meta{Name: check, Namespace: namespace}, Interval: 60, Status: status, Output: output, Issued: now,
		Executed: now, Handlers: handlers}}
	if err := tagproto.Unmarshal(message, e.Entity); err != nil {
		return errkind.E(errkind.Corrupt, "entity", err)
	}
	return m.Events.Router.Frame(ctx, namespace, tagproto.Append(nil, e))
}
