package sensuapi

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/standing"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// rightsEvery is how often sessions are looked at: what is promised is that one ends within 5 s of its right. Each
// has no goroutine or timer for that (kit/standing), since there are very many.
const rightsEvery = 3 * standing.Every

// judged is by what sessions were judged last.
type judged struct {
	access *monitor.Access
	users  map[string]*objects.Item
}

// keepRights ends the sessions whose users or certificates may not have one any more, until ctx ends.
func (a *Agents) keepRights(ctx context.Context) {
	tick := time.NewTicker(rightsEvery)
	defer tick.Stop()
	var last judged
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			last = a.judgeSessions(last)
		}
	}
}

// judgeSessions looks at all sessions where roles or a user have changed, and at all that a certificate says the user
// of.
func (a *Agents) judgeSessions(last judged) judged {
	view := a.cfg.Resources.View()
	now := judged{view.Access(), map[string]*objects.Item{}}
	a.mu.Lock()
	sessions := make([]*session, 0, len(a.links))
	for s := range a.links {
		sessions = append(sessions, s)
	}
	a.mu.Unlock()
	same := last.access == now.access
	for _, s := range sessions {
		if _, known := now.users[s.user]; !known {
			item := view.Get("users", "", s.user)
			before, was := last.users[s.user]
			now.users[s.user] = item
			same = same && was && before == item
		}
	}
	for _, s := range sessions {
		if same && s.cert == nil {
			continue
		}
		if why := a.unfit(now, s); why != "" {
			a.logOf(s).Info("a session ends: "+why, "user", s.user)
			a.end(s.Link, why)
		}
	}
	return now
}

// unfit says why a session is to end; "" where it is not.
func (a *Agents) unfit(now judged, s *session) string {
	item := now.users[s.user]
	if item == nil || item.Object().(*monitor.User).Disabled {
		return "its user is disabled"
	}
	who := monitor.Caller{User: s.user, Groups: item.Object().(*monitor.User).Groups}
	if !now.access.Allows(who, "create", "events", s.Namespace, s.Agent) {
		return "its user may not create events any more"
	}
	if s.cert != nil && a.revoked != nil {
		if err := a.revoked(s.cert); err != nil {
			return "its certificate is refused: " + err.Error()
		}
	}
	return ""
}
