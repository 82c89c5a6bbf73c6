package local

import (
	"cmp"
	"context"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
)

const (
	defaultServiceReason = "Maintenance mode is enabled for this service, but no reason was provided. This is a " +
		"default message."
	defaultNodeReason = "Maintenance mode is enabled for this node, but no reason was provided. This is a default message."
)

// SetServiceMaintenance adds or removes a service's critical maintenance check.
// It is kept across restarts when persist is set. Kind NotFound.
func (l *Local) SetServiceMaintenance(ctx context.Context, id string, enable bool, reason string, persist bool) error {
	return l.markService(ctx, id, enable, persist, &definition.Check{
		ID: catalog.ServiceMaintenancePrefix + id, Name: "Service Maintenance Mode",
		Notes: cmp.Or(reason, defaultServiceReason),
	})
}

// SetServiceDrain adds or removes the check that marks a service as draining: it takes
// no new work, and what it has goes on. It is kept across restarts. Kind NotFound.
func (l *Local) SetServiceDrain(ctx context.Context, id string, enable bool, reason string) error {
	return l.markService(ctx, id, enable, true, drainCheck(id, reason))
}

// drainCheck is the mark of a service that drains.
func drainCheck(id, reason string) *definition.Check {
	return &definition.Check{
		ID: catalog.ServiceDrainPrefix + id, Name: "Service Draining",
		Notes: cmp.Or(reason, "The service is draining: it takes no new work."),
	}
}

// markService adds or removes a critical check of the service, which lives and is written as the service is.
func (l *Local) markService(ctx context.Context, id string, enable, persist bool, d *definition.Check) error {
	s := l.Service(id)
	if s == nil {
		return errkind.Errorf(errkind.NotFound,
			"Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id)
	}
	attach(d, s)
	return l.setMaintenance(ctx, enable, persist, d)
}

// attach makes the check one of the service's, written as the service is.
func attach(d *definition.Check, s *Service) {
	d.ServiceID, d.Token, d.FromFile = s.Service.ID, s.Definition.Token, s.Definition.FromFile
}

// DrainServices marks services as draining until the process ends: a restart forgets the marks. Services that are
// gone are left out, and marks that are there stay as they are.
func (l *Local) DrainServices(ctx context.Context, ids []string, reason string) error {
	newest := uint64(0)
	for _, id := range ids {
		s := l.Service(id)
		if s == nil || l.Check(catalog.ServiceDrainPrefix+id) != nil {
			continue
		}
		d := drainCheck(id, reason)
		d.Status, d.Maintenance = "critical", true
		attach(d, s)
		version, err := l.putCheck(nil, d, false)
		if err != nil && !errkind.Is(err, errkind.NotFound) {
			return err
		}
		newest = max(newest, version)
	}
	l.sync.await(ctx, newest)
	return nil
}

// SetNodeMaintenance adds or removes the host's critical maintenance check.
func (l *Local) SetNodeMaintenance(ctx context.Context, enable bool, reason string, persist bool) error {
	return l.setMaintenance(ctx, enable, persist, &definition.Check{
		ID: catalog.NodeMaintenanceID, Name: "Node Maintenance Mode", Notes: cmp.Or(reason, defaultNodeReason),
	})
}

// setMaintenance is idempotent: enabling again keeps the first reason.
func (l *Local) setMaintenance(ctx context.Context, enable, persist bool, d *definition.Check) error {
	d.Status, d.Maintenance = "critical", true
	there := l.Check(d.ID) != nil
	switch {
	case enable && !there:
		version, err := l.putCheck(nil, d, persist)
		if err != nil {
			return err
		}
		l.sync.await(ctx, version)
	case !enable && there:
		if err := l.DeregisterCheck(ctx, d.ID); !errkind.Is(err, errkind.NotFound) {
			return err // gone meanwhile is what was asked for
		}
	}
	return nil
}
