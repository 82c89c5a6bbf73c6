package noderows

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobtally"
	"corbel.dev/corbel/jobs/jobwire"
)

func pools(q *request) error {
	prefix := q.Query.Value("prefix")
	return q.Read(nomadrows.Whole(nomadrows.Pools, func(v nomadrows.View) (any, error) {
		return nomadrows.List(q, nomadrows.Listing[*nomadrows.NodePool]{
			Items: func(yield func(*nomadrows.NodePool) bool) {
				for _, p := range v.Pools() {
					if strings.HasPrefix(p.Name, prefix) && !yield(p) {
						return
					}
				}
			},
			Name: func(p *nomadrows.NodePool) string { return p.Name },
			Show: func(p *nomadrows.NodePool) any { return p },
		})
	}))
}

// find is the pool that the path names.
func find(q *request, v nomadrows.View) (*nomadrows.NodePool, error) {
	list := v.Pools()
	at := slices.IndexFunc(list, func(p *nomadrows.NodePool) bool { return p.Name == q.Args["pool"] })
	if at < 0 {
		return nil, nomadrows.NotFound("node pool not found")
	}
	return list[at], nil
}

func pool(q *request) error {
	return q.Read(nomadrows.Whole(nomadrows.Pools, func(v nomadrows.View) (any, error) { return find(q, v) }))
}

func poolNodes(q *request) error { return listOf(q, q.Args["pool"]) }

func poolJobs(q *request) error {
	return q.Read(nomadrows.Whole(nomadrows.Jobs, func(v nomadrows.View) (any, error) {
		if _, err := find(q, v); err != nil {
			return nil, err
		}
		list := []any{}
		for j := range v.State().Jobs() {
			pool := j.NodePool
			if pool == "" {
				pool = "default"
			}
			if pool != q.Args["pool"] || !q.Sees(j.Namespace, nomadrows.ReadJob) {
				continue
			}
			stub := jobwire.JobListed(j, jobtally.Summary(v.State(), j), false)
			stub.Status, _ = v.State().JobStatus(j)
			list = append(list, stub)
		}
		return list, nil
	}))
}

// poolName is compiled when it is first needed: a counted repetition takes long, at each start of the program.
var poolName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
})

func putPool(q *request) error {
	p, err := nomadrows.Decode[nomadrows.NodePool](q)
	if err != nil {
		return err
	}
	if name := q.Args["pool"]; name != "" && p.Name == "" {
		p.Name = name
	}
	switch {
	case q.Args["pool"] != "" && p.Name != q.Args["pool"]:
		return nomadrows.BadRequest("Node pool name does not match request path")
	case !poolName().MatchString(p.Name):
		return nomadrows.Failed("invalid name %q, must match regex %s", p.Name, poolName())
	case len(p.Description) > 256:
		return nomadrows.Failed("description longer than 256")
	case p.Name == "all" || p.Name == "default":
		return nomadrows.Failed("modifying node pool %q is not allowed", p.Name)
	}
	if c := p.SchedulerConfiguration; c != nil {
		switch c.SchedulerAlgorithm {
		case "", jobs.Binpack, jobs.SpreadFit:
		default:
			return nomadrows.Failed("invalid scheduler algorithm %q: it is binpack or spread", c.SchedulerAlgorithm)
		}
	}
	w, err := q.Settings.Put(q.Ctx(), p)
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, nil)
}

func deletePool(q *request) error {
	name := q.Args["pool"]
	if name == "all" || name == "default" {
		return nomadrows.Failed("node pool %q can not be deleted", name)
	}
	w, err := q.Settings.Delete(q.Ctx(), nomadrows.Pools, "", name)
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, nil)
}
