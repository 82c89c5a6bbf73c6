package shardrouter

import (
	"time"

	"corbel.dev/corbel/monitor/shards"
)

// keptAfter is how long a server that is to give its shards away, since it leaves or its store hangs, may keep as
// many as it has before the operator is told; keptAgain is how often.
const (
	keptAfter = 30 * time.Second
	keptAgain = time.Minute
)

// kept is what one server that is to give its shards away still has.
type kept struct {
	shards int
	behind int // of these, such whose replica lacks something, or of which nothing is known
	since  time.Time
	told   time.Time
}

// keepers notes which servers keep shards that they are to give away, and returns those to tell of now, by id, and
// how many shards are stuck. before is what it returned last; whole says whether the replica of a shard has
// everything.
func keepers(before map[string]*kept, now time.Time, t *shards.Table, servers []shards.Server,
	whole func(shard int) bool) (all map[string]*kept, tell []string, stuck int) {
	all = map[string]*kept{}
	for _, s := range servers {
		if !s.Leaving || s.Gone {
			continue
		}
		k := kept{since: now}
		for i, one := range t {
			if one.Owner == s.ID {
				k.shards++
				if !whole(i) {
					k.behind++
				}
			}
		}
		if was := before[s.ID]; was != nil && k.shards >= was.shards {
			k.since, k.told = was.since, was.told
		}
		all[s.ID] = &k
		if k.shards == 0 || now.Sub(k.since) < keptAfter {
			continue
		}
		stuck += k.shards
		if now.Sub(k.told) >= keptAgain {
			k.told = now
			tell = append(tell, s.ID)
		}
	}
	return all, tell, stuck
}

// watchKeepers tells the operator of servers that keep what they are to give away, and why.
func (s *Router) watchKeepers(t *shards.Table, servers []shards.Server, whole func(shard int) bool) {
	w := &s.watch
	all, tell, stuck := keepers(w.kept, s.cfg.Now(), t, servers, whole)
	w.kept = all
	s.stuck.Store(int64(stuck))
	for _, id := range tell {
		name := id
		if m, err := s.member(id); err == nil {
			name = m.Name
		}
		s.cfg.Log.Warn("a server has not handed over its shards", "server", name, "shards", all[id].shards,
			"replicas_behind", all[id].behind, "for", s.cfg.Now().Sub(all[id].since).Round(time.Second), "error", w.refused[id])
	}
}
