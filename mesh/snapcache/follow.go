package snapcache

import (
	"sync"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/coalesce"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// follower is one who follows a subject.
type follower struct {
	cell   *cell
	token  string
	set    func(feed.Value)
	denied func(error)
	at     int  // in cell.followers; guarded by cell.mu
	gone   bool // it is not, or not any more; guarded by cell.mu

	mu    sync.Mutex // held while set and denied are called
	next  uint64     // the turn that it waits for
	ahead *version   // that it was given before the others were told, until it is given another one
	over  bool
}

// tokenUse is what follows with one token.
type tokenUse struct {
	grant     *acl.Grant // that its followers were judged by
	followers map[*follower]struct{}
}

// Follow implements feed.Source. Endpoints and upstreams need service:read on the
// service, a service's own set-up service:write on it, roots nothing. What of the
// instances is shown does not depend on node:read: one value is for all who may see the
// service. Rules are those of the State of now, others what was told last.
// Before Ready set is called once there is a value. set and denied must not call stop, nor wait for a lock
// that is held around it.
func (sc *Cache) Follow(who feed.Identity, subject string, set func(feed.Value), denied func(error)) (stop func(),
	err error) {
	s, err := mesh.ParseSubject(subject)
	if err != nil {
		return nil, err
	}
	f := &follower{token: who.Token, set: set, denied: denied}
	if err := sc.admit(f, s); err != nil {
		return nil, err
	}
	c := f.cell
	if c.newest() == nil {
		sc.first(c)
	}
	c.mu.Lock()
	v := c.value
	if !f.gone { // else its right ended meanwhile, and it was told so
		f.at = len(c.followers)
		c.followers = append(c.followers, f)
	}
	c.mu.Unlock()
	if s.Kind == mesh.SubjectRules { // they replace others, and must not be older than those
		v = current(sc, c, v)
	}
	f.give(v)
	return func() { sc.leave(f) }, nil
}

// admit finds the subject's cell for a follower that has the right to it.
func (sc *Cache) admit(f *follower, s mesh.Subject) error {
	for {
		sc.mu.Lock()
		rights := sc.rights
		sc.mu.Unlock()
		grant, err := sc.judge(f.token, s)
		if err != nil {
			return err
		}
		sc.mu.Lock()
		if rights != sc.rights {
			sc.mu.Unlock()
			continue // it was judged by rights that may be gone
		}
		err = sc.admitLocked(f, s, grant)
		sc.mu.Unlock()
		return err
	}
}

func (sc *Cache) admitLocked(f *follower, s mesh.Subject, grant *acl.Grant) error {
	c := sc.cells[s]
	if c == nil {
		if len(sc.cells) >= sc.cfg.MaxSubjects {
			return errkind.Errorf(errkind.Overloaded, "this server holds %d subjects of the mesh already: follow at another",
				len(sc.cells))
		}
		c = &cell{subject: s, edge: coalesce.Edge{Window: sc.cfg.Window}}
		sc.cells[s] = c
	}
	c.refs++
	f.cell = c
	use := sc.tokens[f.token]
	if use == nil {
		use = &tokenUse{grant: grant, followers: map[*follower]struct{}{}}
		sc.tokens[f.token] = use
	}
	use.followers[f] = struct{}{}
	return nil
}

// leave ends a follower: after it set is not called again.
func (sc *Cache) leave(f *follower) {
	f.mu.Lock()
	was := f.over
	f.over = true
	f.mu.Unlock()
	if !was {
		sc.drop(f)
	}
}

// drop takes a follower that is over out of all lists.
func (sc *Cache) drop(f *follower) {
	c := f.cell
	c.mu.Lock()
	f.gone = true
	last := len(c.followers) - 1
	if f.at <= last && c.followers[f.at] == f {
		c.followers[f.at] = c.followers[last]
		c.followers[f.at].at = f.at
		c.followers[last] = nil
		c.followers = c.followers[:last]
	}
	c.mu.Unlock()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if use := sc.tokens[f.token]; use != nil {
		if delete(use.followers, f); len(use.followers) == 0 {
			delete(sc.tokens, f.token)
		}
	}
	if c.refs--; c.refs == 0 {
		delete(sc.cells, c.subject)
		sc.forgetLocked(c)
	}
}

// give calls the follower, unless it has seen as new a value or is over. What a server without a
// State makes (it has just begun, or just joined) is no value: who took it for one would take
// away from proxies what they have.
func (f *follower) give(v *version) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || v.turn < f.next || v.Generation == 0 {
		return false
	}
	f.next = v.turn + 1
	had, value := f.ahead, v.Value
	if had != nil && v.Generation == had.Generation {
		if v.Index <= had.Index {
			return false // it has just this
		}
		if saysTheSame(&had.Value, &value) { // to the others it is news
			value.Since = had.Index
		}
	}
	if f.ahead = nil; v.ahead {
		f.ahead = v
	}
	f.set(value)
	return true
}

// tell gives a value to all who follow now. Who comes later gets it, or a later one, by itself.
func (sc *Cache) tell(c *cell, v *version, followers []*follower) []*follower {
	c.mu.Lock()
	followers = append(followers[:0], c.followers...)
	c.mu.Unlock()
	told := uint64(0)
	for _, f := range followers {
		if f.give(v) && v.Since == 0 {
			told++
		}
	}
	sc.counts.told.Add(told)
	sc.meters.told.Add(told)
	clear(followers)
	return followers[:0]
}
