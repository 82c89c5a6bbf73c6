package sensurest

import "corbel.dev/corbel/monitor"

// covered is the event with the silences that hold for it now: one that came or went behind its arrival shows at
// once. What is stored stays.
func (q events) covered(e *monitor.Event) *monitor.Event {
	if e == nil || e.Check == nil || e.Entity == nil {
		return e
	}
	all := q.cfg.Resources.View().Silences(e.Entity.Namespace)
	if all.Empty() && len(e.Check.Silenced) == 0 {
		return e
	}
	var names []string
	for _, s := range all.Of(monitor.Subject{Check: e.Check.Name, CheckSubscriptions: e.Check.Subscriptions,
		Entity: e.Entity.Name, EntitySubscriptions: e.Entity.Subscriptions,
		Proxy: e.Check.ProxyEntityName != ""}, q.cfg.Now().Unix()) {
		names = append(names, s.Name)
	}
	shown, check := *e, *e.Check
	check.Silenced, check.IsSilenced = names, len(names) > 0
	shown.Check = &check
	return &shown
}
