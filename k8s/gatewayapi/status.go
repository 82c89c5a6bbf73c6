package gatewayapi

import "slices"

// Stamp gives each condition of a status the time at which its status was last another: that of old where it is the
// same, else now. status and old are values of one of this package's types; a nil old has none.
func Stamp(status, old any, now string) any {
	before := map[string]Condition{}
	visit(old, func(of string, list []Condition) []Condition {
		for _, c := range list {
			before[of+" "+c.Type] = c
		}
		return list
	})
	return visit(status, func(of string, list []Condition) []Condition {
		list = slices.Clone(list)
		for i := range list {
			c := &list[i]
			c.LastTransitionTime = now
			if b, ok := before[of+" "+c.Type]; ok && b.Status == c.Status && b.LastTransitionTime != "" {
				c.LastTransitionTime = b.LastTransitionTime
			}
		}
		return list
	})
}

// visit returns the status with each list of conditions replaced by what f makes of it; of names whose they are.
func visit(status any, f func(of string, list []Condition) []Condition) any {
	switch s := status.(type) {
	case ClassStatus:
		s.Conditions = f("", s.Conditions)
		return s
	case GatewayStatus:
		s.Conditions = f("", s.Conditions)
		s.Listeners = slices.Clone(s.Listeners)
		for i := range s.Listeners {
			s.Listeners[i].Conditions = f("listener "+s.Listeners[i].Name, s.Listeners[i].Conditions)
		}
		return s
	case RouteStatus:
		s.Parents = slices.Clone(s.Parents)
		for i := range s.Parents {
			p := &s.Parents[i]
			p.Conditions = f("parent "+p.ControllerName+" "+p.ParentRef.key(), p.Conditions)
		}
		return s
	}
	return status
}

func (r *Ref) key() string { return or(r.Namespace, "") + "/" + r.Name + "/" + or(r.SectionName, "") }

// Own is what a route's status says of parents of ours.
func Own(s RouteStatus) (out RouteStatus) {
	for _, p := range s.Parents {
		if p.ControllerName == Controller {
			out.Parents = append(out.Parents, p)
		}
	}
	return out
}

// Beside is what other controllers said, with what we say.
func Beside(old, own RouteStatus) RouteStatus {
	out := RouteStatus{Parents: []ParentStatus{}}
	for _, p := range old.Parents {
		if p.ControllerName != Controller {
			out.Parents = append(out.Parents, p)
		}
	}
	out.Parents = append(out.Parents, own.Parents...)
	return out
}
