package monitorplane

import (
	"corbel.dev/corbel/api/sensuapi/selectors"
	"corbel.dev/corbel/monitor/business"
)

// newServices makes what evaluates business services, on the server that leads the plane.
func newServices(m *Plane) *business.Services {
	d := m.d
	return business.New(business.Config{Resources: m.Group.Resources, Events: m.Events.Router, Scripts: d.Scripts,
		Fields: selectors.Fields["events"], Labels: selectors.Labels, Leads: m.Group.Raft.LeaseHeld, Clock: d.Clock,
		Log: d.Log})
}

// meterServices exports what business services cost; servers that do not lead have nothing to tell.
func (c *Checks) meterServices(stat gauge) {
	stat("service_components", "Service components that this server evaluates: those of the cluster, where it leads.",
		func() float64 { return float64(c.services.Stats().Components) })
	stat("service_rules", "Rules of service components that were evaluated.",
		func() float64 { return float64(c.services.Stats().Evaluated) })
	stat("service_rules_failed", "Rules whose template was not there, failed, was cut or got wrong arguments.",
		func() float64 { return float64(c.services.Stats().Failed) })
	stat("service_rules_refused", "Rules whose event would have replaced one of somebody else.",
		func() float64 { return float64(c.services.Stats().Refused) })
	stat("service_events_bytes", "Events that are held for programs of service components.",
		func() float64 { return float64(c.services.Stats().Held) })
	stat("service_readings_again", "Times at which events of a namespace were read again, since those that programs get "+
		"do not fit in memory at once.", func() float64 { return float64(c.services.Stats().Again) })
	stat("service_rounds_failed", "Times at which events of a namespace could not be read, or those of its services not "+
		"written.", func() float64 { return float64(c.services.Stats().Skipped) })
}
