package feasible

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"corbel.dev/corbel/jobs"
)

// Program is what a group demands of nodes, compiled once for an evaluation.
type Program struct {
	job     *jobs.Job
	group   *jobs.TaskGroup
	class   []check // the same for all nodes of a computed class
	node    []check // looks at the node itself
	drivers []string
	// HostsOfJob and HostsOfGroup: no two allocations of it on one node.
	HostsOfJob, HostsOfGroup bool
	Properties               []Property
	Affinities               []Liking
	AffinityTotal            float64 // sum of absolute weights
	Ask                      *Ask
}

type check struct {
	Matcher
	text string
}

// Property is a distinct_property: at most Limit allocations per value.
type Property struct {
	Target
	Text  string
	Limit int
	OfJob bool // counts all groups of the job
}

// Liking is a compiled affinity.
type Liking struct {
	Matcher
	Weight float64
}

// New compiles what a group of a job demands.
func New(job *jobs.Job, group *jobs.TaskGroup, config jobs.Config) (*Program, error) {
	p := &Program{job: job, group: group, Ask: NewAsk(group, config.Oversubscription)}
	if err := p.constrain(job.Constraints, true); err != nil {
		return nil, err
	}
	rules := append([]jobs.Affinity{}, job.Affinities...)
	if err := p.constrain(group.Constraints, false); err != nil {
		return nil, err
	}
	rules = append(rules, group.Affinities...)
	for _, t := range group.Tasks {
		if err := p.constrain(t.Constraints, false); err != nil {
			return nil, err
		}
		rules = append(rules, t.Affinities...)
		if !slices.Contains(p.drivers, t.Driver) {
			p.drivers = append(p.drivers, t.Driver)
		}
	}
	for _, a := range rules {
		m, err := Compile(a.Constraint)
		if err != nil {
			return nil, err
		}
		p.Affinities = append(p.Affinities, Liking{m, float64(a.Weight)})
		p.AffinityTotal += max(float64(a.Weight), -float64(a.Weight))
	}
	return p, nil
}

func (p *Program) constrain(list []jobs.Constraint, ofJob bool) error {
	for _, c := range list {
		m, err := Compile(c)
		if err != nil {
			return err
		}
		switch {
		case c.Operand == DistinctHosts:
			on := c.Right != "false"
			p.HostsOfJob = p.HostsOfJob || on && ofJob
			p.HostsOfGroup = p.HostsOfGroup || on && !ofJob
		case c.Operand == DistinctProperty:
			limit := 1
			if c.Right != "" {
				if n, err := fmt.Sscanf(c.Right, "%d", &limit); n != 1 || err != nil || limit < 1 {
					return fmt.Errorf("constraint %q: %q is not a number above 0", c, c.Right)
				}
			}
			p.Properties = append(p.Properties, Property{m.left, c.String(), limit, ofJob})
		case m.Unique():
			p.node = append(p.node, check{m, c.String()})
		default:
			p.class = append(p.class, check{m, c.String()})
		}
	}
	return nil
}

// Escaped reports whether classes do not say it all: a node of a class that was infeasible may be feasible.
func (p *Program) Escaped() bool { return len(p.node) > 0 }

// Reach reports whether a node is in the job's datacenters and pool.
func (p *Program) Reach(n *jobs.Node) bool {
	return p.InPool(n) && InDatacenters(p.job.Datacenters, n.Datacenter)
}

// InPool reports whether a node is in the job's pool.
func (p *Program) InPool(n *jobs.Node) bool {
	pool := p.job.NodePool
	return pool == "all" || n.InPool() == pool || pool == "" && n.InPool() == "default"
}

// InDatacenters reports whether one of the globs matches; none means all.
func InDatacenters(globs []string, name string) bool {
	if len(globs) == 0 {
		return true
	}
	for _, g := range globs {
		if ok, err := path.Match(g, name); ok && err == nil {
			return true
		}
	}
	return false
}

// Class returns why the nodes of n's computed class do not serve the group, or "".
func (p *Program) Class(n *jobs.Node) string {
	for i := range p.class {
		if !p.class[i].Meets(n) {
			return p.class[i].text
		}
	}
	return p.provides(n)
}

// provides returns what of the node's own a group needs and n does not have, or "".
func (p *Program) provides(n *jobs.Node) string {
	for _, d := range p.drivers {
		if driver, ok := n.Drivers[d]; !ok || !driver.Detected || !driver.Healthy {
			return "missing drivers"
		}
	}
	for _, v := range p.group.Volumes {
		if v.Type != "host" {
			continue
		}
		if volume, ok := n.HostVolumes[v.Source]; !ok || volume.ReadOnly && !v.ReadOnly {
			return "missing compatible host volumes"
		}
	}
	for _, net := range p.group.Networks {
		switch net.Mode {
		case "", "host", "none":
		default:
			if !slices.Contains(n.Capacity.Modes, net.Mode) {
				return "missing network"
			}
		}
	}
	return p.equipment(n)
}

// equipment looks for devices and cores, whoever uses them now.
func (p *Program) equipment(n *jobs.Node) string {
	if p.Ask.cores > len(n.Capacity.Cores) {
		return "missing cores"
	}
	if p.Ask.devices {
		if empty := (Room{}); !p.Ask.assignDevices(n, &empty, &jobs.Grant{}) {
			return "missing devices"
		}
	}
	return ""
}

// Node returns why this very node, of a class that serves, does not serve the group, or "".
func (p *Program) Node(n *jobs.Node) string {
	for i := range p.node {
		if !p.node[i].Meets(n) {
			return p.node[i].text
		}
	}
	return ""
}

// Likes is the affinity score of a node; ok is false when the group has no affinities.
func (p *Program) Likes(n *jobs.Node) (score float64, ok bool) {
	if p.AffinityTotal == 0 {
		return 0, false
	}
	for i := range p.Affinities {
		if p.Affinities[i].Meets(n) {
			score += p.Affinities[i].Weight
		}
	}
	return score / p.AffinityTotal, true
}

// LikesUnique reports whether nodes of one class may have different affinity scores.
func (p *Program) LikesUnique() bool {
	return slices.ContainsFunc(p.Affinities, func(l Liking) bool { return l.Unique() })
}

// uniqueKey reports whether a key of attributes or meta names one node.
func uniqueKey(key string) bool { return strings.HasPrefix(key, "unique.") }

// Group is the name of the group.
func (p *Program) Group() string { return p.group.Name }

// Objections are all demands that n does not meet, of which Class and Node tell the first.
func (p *Program) Objections(n *jobs.Node) (list []string) {
	if !p.InPool(n) {
		list = append(list, "node pool "+n.InPool())
	}
	if !InDatacenters(p.job.Datacenters, n.Datacenter) {
		list = append(list, "datacenter "+n.Datacenter)
	}
	for _, checks := range [][]check{p.class, p.node} {
		for i := range checks {
			if !checks[i].Meets(n) {
				list = append(list, checks[i].text)
			}
		}
	}
	if why := p.provides(n); why != "" {
		list = append(list, why)
	}
	return list
}
