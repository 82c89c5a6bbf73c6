package node

import (
	"corbel.dev/corbel/api/consulapi/agentrows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/pattern"
)

// poolEvents are the user events of the gossip pool.
type poolEvents struct{ pool *member.Pool }

// Fire implements agentrows.Events.
func (p poolEvents) Fire(e agentrows.Event) error {
	_, err := p.pool.FireEvent(member.Event(e))
	return err
}

// Recent implements agentrows.Events.
func (p poolEvents) Recent() ([]agentrows.Event, <-chan struct{}) {
	kept, changed := p.pool.Events()
	list := make([]agentrows.Event, len(kept))
	for i, e := range kept {
		list[i] = agentrows.Event(*e)
	}
	return list, changed
}

// concerns tells whether an event's filters mean this node. A filter that cannot be
// read means nobody: it came from a member that did not check it.
func (p *localAgent) concerns(e *member.Event) bool {
	if !matches(e.NodeFilter, p.Cfg.Node.Name) {
		return false
	}
	if e.ServiceFilter == "" {
		return true
	}
	for _, s := range p.local.View().Services {
		if !matches(e.ServiceFilter, s.Service.Name) {
			continue
		}
		if e.TagFilter == "" {
			return true
		}
		for _, tag := range s.Service.Tags {
			if matches(e.TagFilter, tag) {
				return true
			}
		}
	}
	return false
}

func matches(expr, text string) bool {
	if expr == "" {
		return true
	}
	re, err := pattern.Compile(expr)
	return err == nil && re.MatchString(text)
}
