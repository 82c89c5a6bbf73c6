package reconcile

import (
	"reflect"
	"slices"
	"strings"

	"corbel.dev/corbel/jobs"
)

func (g *work) do(list []*jobs.Allocation) {
	g.out.TaskGroup = g.tg
	g.sort(list)
	g.scaleDown()
	inPlace, destructive := g.compare()
	rolling := g.in.Job.Type == jobs.Service && g.tg.Update != nil && g.tg.Update.MaxParallel > 0
	first := !slices.ContainsFunc(list, g.current)
	canaries := 0
	if rolling && !g.failed {
		if len(destructive) > 0 && !g.promoted() {
			canaries = g.tg.Update.Canary
		}
		state := g.d != nil && g.d.Groups[g.tg.Name] != nil
		if !state && g.tg.Count > 0 && (first || len(inPlace)+len(destructive) > 0) {
			g.begin(canaries)
		}
	}
	for _, a := range inPlace {
		g.updateInPlace(a, rolling)
	}
	used := g.replacements()
	g.missing(used)
	placing := len(g.out.Place) + len(g.out.Replace)
	waiting := 0
	if canaries > 0 || g.canarying() {
		waiting = len(destructive)
		g.canaries(canaries, destructive)
	} else {
		waiting = g.roll(destructive, rolling, placing)
	}
	g.out.Counts.Ignore = len(g.keep) - len(inPlace) - g.out.Counts.Destructive
	g.out.Counts.Place = len(g.out.Place) - g.out.Counts.Canary // as stock says: canaries are not created beside
	g.complete = placing+waiting+g.out.Counts.Destructive+len(inPlace) == 0 && g.healthy()
}

// current reports whether an allocation runs the job's newest version.
func (g *work) current(a *jobs.Allocation) bool {
	return a.Job.Version == g.in.Job.Version && a.Job.CreateIndex == g.in.Job.CreateIndex
}

func (g *work) promoted() bool {
	if g.d == nil {
		return false
	}
	s := g.d.Groups[g.tg.Name]
	return s != nil && (s.Promoted || s.DesiredCanaries == 0)
}

// healthy reports whether as many allocations are healthy as the deployment wants.
func (g *work) healthy() bool {
	if g.d == nil || g.d.Groups[g.tg.Name] == nil {
		return true
	}
	n := 0
	for _, a := range g.keep {
		if a.Rollout.Deployment == g.d.ID && a.Rollout.Health == jobs.Healthy && !a.Terminal() {
			n++
		}
	}
	return n >= g.tg.Count
}

func (g *work) stop(a *jobs.Allocation, why string) {
	g.result.stop(g.in, a, why)
	g.out.Counts.Stop++
}

// scaleDown stops what has another's index, and then what is too much: failed ones first, unknown and
// migrating ones next, and of the rest the highest index first (NS-32).
func (g *work) scaleDown() {
	newest := map[int]*jobs.Allocation{}
	for _, a := range g.keep {
		if b := newest[a.Index]; b == nil || b.ClientTerminal() || !a.ClientTerminal() && b.Job.Version < a.Job.Version {
			newest[a.Index] = a
		}
	}
	g.keep = slices.DeleteFunc(g.keep, func(a *jobs.Allocation) bool {
		if newest[a.Index] == a {
			return false
		}
		if !a.ClientTerminal() {
			g.stop(a, "alloc not needed: another one has its place")
		}
		return true
	})
	for _, list := range []*[]*jobs.Allocation{&g.again, &g.migrate, &g.away} {
		*list = slices.DeleteFunc(*list, func(a *jobs.Allocation) bool {
			if newest[a.Index] == nil {
				newest[a.Index] = a
				return false
			}
			g.stop(a, "alloc not needed: another one has its place")
			return true
		})
	}
	excess := len(g.keep) + len(g.migrate) + len(g.again) + len(g.away) - g.tg.Count
	drop := func(from *[]*jobs.Allocation, which func(*jobs.Allocation) bool) {
		for i := len(*from) - 1; i >= 0 && excess > 0; i-- {
			if a := (*from)[i]; which(a) {
				g.stop(a, "alloc not needed due to job update")
				*from = slices.Delete(*from, i, i+1)
				excess--
			}
		}
	}
	all := func(*jobs.Allocation) bool { return true }
	drop(&g.again, all)
	drop(&g.keep, func(a *jobs.Allocation) bool {
		return a.Client.Status == jobs.ClientFailed || a.Rollout.Health == jobs.Unhealthy
	})
	drop(&g.away, all)
	drop(&g.migrate, all)
	drop(&g.keep, func(a *jobs.Allocation) bool { return !a.ClientTerminal() })
	drop(&g.keep, all)
}

// compare sorts what is kept by what its new version needs.
func (g *work) compare() (inPlace, destructive []*jobs.Allocation) {
	for _, a := range g.keep {
		switch {
		case g.current(a), g.in.Job.RunsOnce() && a.ClientTerminal():
		case a.ClientTerminal() || g.needsProcess(a) || g.in.Serves != nil && !g.in.Serves(a, g.tg):
			destructive = append(destructive, a)
		case a.Client.Status != jobs.ClientUnknown:
			inPlace = append(inPlace, a)
		}
	}
	return inPlace, destructive
}

// needsProcess reports whether the group changed so that its tasks have to start anew (NS-27).
func (g *work) needsProcess(a *jobs.Allocation) bool {
	need, known := g.updated[a.Job]
	if !known {
		need = Destructive(a.Job, g.in.Job, g.tg.Name)
		g.updated[a.Job] = need
	}
	return need
}

// Destructive reports whether a group's allocations need new processes to become another version.
func Destructive(from, to *jobs.Job, group string) bool {
	a, b := from.Group(group), to.Group(group)
	if a == nil || b == nil || len(a.Tasks) != len(b.Tasks) || a.Disk != b.Disk || from.Type != to.Type ||
		!same(from.Meta, to.Meta) || !same(a.Meta, b.Meta) || !same(a.Networks, b.Networks) ||
		!same(a.Volumes, b.Volumes) || !sameOrder(from.Rules, to.Rules) || !sameOrder(a.Rules, b.Rules) {
		return true
	}
	for _, t := range b.Tasks {
		i := slices.IndexFunc(a.Tasks, func(o *jobs.Task) bool { return o.Name == t.Name })
		if i < 0 {
			return true
		}
		o := a.Tasks[i]
		if o.Driver != t.Driver || o.User != t.User || o.Config != t.Config || !same(o.Env, t.Env) ||
			!same(o.Resources.Devices, t.Resources.Devices) || o.Resources.CPU != t.Resources.CPU ||
			o.Resources.Cores != t.Resources.Cores || o.Resources.MemoryMB != t.Resources.MemoryMB ||
			o.Resources.MemoryMaxMB != t.Resources.MemoryMaxMB || !same(o.Meta, t.Meta) || !same(o.Parts, t.Parts) ||
			!sameOrder(o.Rules, t.Rules) {
			return true
		}
	}
	return false
}

// sameOrder compares what orders nodes or sets allocations apart. Any other new constraint is met or
// not by the node: Input.Serves says it.
func sameOrder(a, b jobs.Rules) bool {
	return same(a.Affinities, b.Affinities) && same(a.Spreads, b.Spreads) && same(apart(a), apart(b))
}

func apart(r jobs.Rules) (list []jobs.Constraint) {
	for _, c := range r.Constraints {
		if strings.HasPrefix(c.Operand, "distinct_") {
			list = append(list, c)
		}
	}
	return list
}

// same is DeepEqual for which nothing and empty are equal.
func same(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.Len() == 0 && y.Len() == 0 || reflect.DeepEqual(a, b)
}

func (g *work) updateInPlace(a *jobs.Allocation, rolling bool) {
	next := *a
	next.Job, next.EvalID = g.in.Job, g.in.EvalID
	next.Rollout = jobs.Rollout{}
	if rolling && g.d != nil {
		next.Rollout.Deployment = g.d.ID
	}
	g.result.Update = append(g.result.Update, &next)
	g.out.Counts.InPlace++
}

// version is what a replacement runs: what it replaces, as long as the new version has not proved itself.
func (g *work) version(previous *jobs.Allocation) *jobs.Job {
	if !g.canarying() && !g.failed {
		return g.in.Job
	}
	if previous != nil && previous.Rollout.Canary {
		return g.in.Job
	}
	if previous != nil && previous.Job.Group(g.tg.Name) != nil {
		return previous.Job
	}
	for _, a := range g.keep {
		if !g.current(a) {
			return a.Job
		}
	}
	return g.in.Job
}

// replacements puts others in the place of what failed, moves, or is lost, and returns the indexes in use.
func (g *work) replacements() map[int]bool {
	used := map[int]bool{}
	for _, list := range [][]*jobs.Allocation{g.keep, g.again, g.migrate, g.away} {
		for _, a := range list {
			used[a.Index] = true
		}
	}
	canary := func(a *jobs.Allocation) bool { return a.Rollout.Canary && g.canarying() }
	for _, a := range g.again {
		g.out.Replace = append(g.out.Replace, Placement{a.Index, a, g.version(a), canary(a), true})
	}
	for _, a := range g.migrate {
		p := Placement{a.Index, a, g.version(a), canary(a), false}
		g.out.Counts.Migrate++
		// It stays until it has a place elsewhere, or its node's time is over.
		if n := g.in.Node(a.NodeID); n != nil && n.Duty.Drain != nil && n.Duty.Drain.Deadline > 0 &&
			n.Duty.Drain.Deadline <= g.in.Now {
			g.stop(a, "alloc is being migrated")
			g.out.Place = append(g.out.Place, p)
			continue
		}
		g.out.Replace = append(g.out.Replace, p)
	}
	for _, a := range g.away {
		g.out.Place = append(g.out.Place, Placement{a.Index, a, g.version(a), false, false})
	}
	have := len(g.keep) + len(g.again) + len(g.migrate) + len(g.away)
	for _, a := range g.lost {
		g.result.Stop = append(g.result.Stop, jobs.Stopping{Alloc: a.ID, Node: a.NodeID, Desired: jobs.Stop,
			Client: jobs.ClientLost, Description: "alloc is lost since its node is down"})
		if have < g.tg.Count && !used[a.Index] && !canary(a) {
			g.out.Place = append(g.out.Place, Placement{a.Index, a, g.version(a), false, false})
			used[a.Index] = true
			have++
		}
	}
	return used
}

// missing places what never was, at the lowest free indexes.
func (g *work) missing(used map[int]bool) {
	next := 0
	for have := len(used); have < g.tg.Count; have++ {
		for used[next] {
			next++
		}
		used[next] = true
		g.out.Place = append(g.out.Place, Placement{Index: next, Job: g.version(nil)})
	}
}

// canaries places the canaries that are not there yet, at the indexes of those that they are to replace.
func (g *work) canaries(want int, destructive []*jobs.Allocation) {
	if g.d == nil || g.d.Status == jobs.DeployPaused {
		return
	}
	if s := g.d.Groups[g.tg.Name]; s != nil {
		want = s.DesiredCanaries
	}
	used := map[int]bool{}
	for _, a := range g.canary {
		used[a.Index] = true
	}
	for _, p := range g.out.Replace {
		used[p.Index] = used[p.Index] || p.Canary
	}
	next := g.tg.Count
	for have := len(used); have < want; have++ {
		at := -1
		for _, a := range destructive {
			if !used[a.Index] {
				at = a.Index
				break
			}
		}
		for at < 0 {
			if !used[next] {
				at = next
			}
			next++
		}
		used[at] = true
		g.out.Place = append(g.out.Place, Placement{Index: at, Job: g.in.Job, Canary: true})
		g.out.Counts.Canary++
	}
}

// roll replaces as many as may be in the making at once, and returns how many wait (NS-27).
func (g *work) roll(destructive []*jobs.Allocation, rolling bool, placing int) (waiting int) {
	limit := len(destructive)
	if rolling {
		limit = g.tg.Update.MaxParallel - placing
		for _, a := range g.keep {
			if g.d != nil && a.Rollout.Deployment == g.d.ID && a.Rollout.Health != jobs.Healthy && !a.Terminal() {
				limit--
			}
		}
	}
	if g.failed || g.d != nil && g.d.Status == jobs.DeployPaused {
		limit = 0
	}
	limit = min(max(limit, 0), len(destructive))
	for _, a := range destructive[:limit] {
		g.out.Replace = append(g.out.Replace, Placement{Index: a.Index, Previous: a, Job: g.in.Job})
		g.out.Counts.Destructive++
	}
	return len(destructive) - limit
}
