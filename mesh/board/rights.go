package board

import (
	"context"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/coalesce"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// judge finds out what the token allows, and whether that is enough.
func (b *Board) judge(token string, s mesh.Subject) (*acl.Grant, error) {
	if b.cfg.Access == nil || s.Kind == mesh.SubjectRoots {
		return nil, nil
	}
	grant, err := b.cfg.Access.Grant(context.Background(), token) // on a server it does not wait
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
	case mesh.SubjectRoots:
		return nil // for everybody who may connect
	}
	return errkind.Errorf(errkind.Denied, "nobody said who may follow %q", s)
}

// rightsWindow is the least time between two looks at the rights of all.
const rightsWindow = 250 * time.Millisecond

// keepRights ends those who have lost their right, after changes of rights and now and then.
func (b *Board) keepRights(ctx context.Context) {
	edge := coalesce.Edge{Window: rightsWindow}
	timer := b.cfg.Clock.NewTimer(b.cfg.Recheck)
	defer timer.Stop()
	for {
		now := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			now = edge.Change(b.cfg.Clock.Now()) || edge.Fire(b.cfg.Clock.Now())
		case <-b.recheck:
			now = edge.Change(b.cfg.Clock.Now())
		}
		if now {
			b.checkRights()
		}
		wait := b.cfg.Recheck
		if due, pending := edge.Due(); pending {
			wait = max(due.Sub(b.cfg.Clock.Now()), time.Millisecond)
		}
		timer.Stop()
		timer.Reset(wait)
	}
}

// checkRights judges the followers of each token whose rights are others than before.
func (b *Board) checkRights() {
	if b.cfg.Access == nil {
		return
	}
	b.mu.Lock()
	tokens := make([]string, 0, len(b.tokens))
	for t := range b.tokens {
		tokens = append(tokens, t)
	}
	b.mu.Unlock()
	for _, t := range tokens {
		grant, err := b.cfg.Access.Grant(context.Background(), t)
		if err != nil && errkind.Of(err) != errkind.Denied {
			continue // nothing is known of the token now
		}
		for _, f := range b.rejudge(t, grant) {
			if e := err; e != nil || may(grant, f.cell.subject) != nil {
				if e == nil {
					e = may(grant, f.cell.subject)
				}
				b.deny(f, e)
			}
		}
	}
}

// rejudge lists the followers with the token if its rights are others than they were judged by.
func (b *Board) rejudge(token string, grant *acl.Grant) []*follower {
	b.mu.Lock()
	defer b.mu.Unlock()
	use := b.tokens[token]
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

func (b *Board) deny(f *follower, err error) {
	f.mu.Lock()
	was := f.over
	f.over = true
	if !was {
		f.denied(err)
	}
	f.mu.Unlock()
	if !was {
		b.drop(f)
		b.meters.denied.Add(1)
	}
}
