package snapcache

import (
	"context"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/coalesce"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// judge finds out what the token allows, and whether that is enough.
func (sc *Cache) judge(token string, s mesh.Subject) (*acl.Grant, error) {
	if sc.cfg.Access == nil || s.Kind == mesh.SubjectRoots {
		return nil, nil
	}
	grant, err := sc.cfg.Access.Grant(context.Background(), token) // on a server it does not wait
	if err != nil {
		return nil, err
	}
	return grant, may(grant, s)
}

func may(g *acl.Grant, s mesh.Subject) error {
	switch s.Kind {
	case mesh.SubjectEndpoints, mesh.SubjectUpstream, mesh.SubjectInstances, mesh.SubjectVirtual:
		return g.Check(acl.Service, s.Service, acl.Read)
	case mesh.SubjectService:
		return g.Check(acl.Service, s.Service, acl.Write)
	case mesh.SubjectRules:
		if s.Service == "" { // of no service: for all that have proxies
			return g.CheckAny(acl.Service, acl.Write)
		}
		return g.Check(acl.Service, s.Service, acl.Write)
	case mesh.SubjectPassages: // of all services
		return g.CheckBelow(acl.Service, "", acl.Read)
	case mesh.SubjectRoots:
		return nil // for everybody who may connect
	}
	return errkind.Errorf(errkind.Denied, "nobody said who may follow %q", s)
}

// rightsWindow is the least time between two looks at the rights of all.
const rightsWindow = 250 * time.Millisecond

// keepRights ends those who have lost their right, after changes of rights and now and then.
func (sc *Cache) keepRights(ctx context.Context) {
	edge := coalesce.Edge{Window: rightsWindow}
	timer := sc.cfg.Clock.NewTimer(sc.cfg.Recheck)
	defer timer.Stop()
	for {
		now := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			now = edge.Change(sc.cfg.Clock.Now()) || edge.Fire(sc.cfg.Clock.Now())
		case <-sc.recheck:
			now = edge.Change(sc.cfg.Clock.Now())
		}
		if now {
			sc.checkRights()
		}
		wait := sc.cfg.Recheck
		if due, pending := edge.Due(); pending {
			wait = max(due.Sub(sc.cfg.Clock.Now()), time.Millisecond)
		}
		timer.Stop()
		timer.Reset(wait)
	}
}

// checkRights judges the followers of each token whose rights are others than before.
func (sc *Cache) checkRights() {
	if sc.cfg.Access == nil {
		return
	}
	sc.mu.Lock()
	tokens := make([]string, 0, len(sc.tokens))
	for t := range sc.tokens {
		tokens = append(tokens, t)
	}
	sc.mu.Unlock()
	for _, t := range tokens {
		grant, err := sc.cfg.Access.Grant(context.Background(), t)
		if err != nil && errkind.Of(err) != errkind.Denied {
			continue // nothing is known of the token now
		}
		for _, f := range sc.rejudge(t, grant) {
			if e := err; e != nil || may(grant, f.cell.subject) != nil {
				if e == nil {
					e = may(grant, f.cell.subject)
				}
				sc.deny(f, e)
			}
		}
	}
}

// rejudge lists the followers with the token if its rights are others than they were judged by.
func (sc *Cache) rejudge(token string, grant *acl.Grant) []*follower {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	use := sc.tokens[token]
	if use == nil || grant != nil && use.grant == grant {
		return nil
	}
	use.grant = grant
	list := make([]*follower, 0, len(use.followers))
	for f := range use.followers {
		if f.cell.subject.Kind != mesh.SubjectRoots {
			list = append(list, f)
		}
	}
	return list
}

func (sc *Cache) deny(f *follower, err error) {
	f.mu.Lock()
	was := f.over
	f.over = true
	if !was {
		f.denied(err)
	}
	f.mu.Unlock()
	if !was {
		sc.drop(f)
		sc.meters.denied.Add(1)
	}
}
