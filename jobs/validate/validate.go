// Package validate says what is wrong with a job that somebody registers (§9 of the contract): all of it at
// once, each problem with the field as the job file names it.
//
// Job wants a canonical job: an empty field is one that its owner left empty. Whether pools, namespaces and regions
// exist, and whether clients may do what the job asks, is known elsewhere. The package is pure, and its cost is
// linear in the job but for expressions, which kit/pattern bounds.
package validate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/periodic"
)

// maxListed bounds what is told of one job.
const maxListed = 100

// Findings are what is wrong with a job, and what is only strange.
type Findings struct{ Problems, Warnings []string }

// Text lists findings as the contract's answers have them.
func Text(list []string) string {
	if len(list) == 0 {
		return ""
	}
	word := "errors"
	if len(list) == 1 {
		word = "error"
	}
	return fmt.Sprintf("%d %s occurred:\n\t* %s\n\n", len(list), word, strings.Join(list, "\n\t* "))
}

// scope is a place in a job: problems found there begin with its name.
type scope struct {
	path string
	to   *Findings
}

func (s scope) at(name string) scope {
	if s.path != "" {
		name = s.path + "." + name
	}
	return scope{name, s.to}
}

func (s scope) line(format string, args []any) string {
	text := fmt.Sprintf(format, args...)
	if s.path == "" {
		return text
	}
	return s.path + ": " + text
}

// wrong records a problem.
func (s scope) wrong(format string, args ...any) {
	if len(s.to.Problems) < maxListed {
		s.to.Problems = append(s.to.Problems, s.line(format, args))
	}
}

// unless records a problem when what must hold does not.
func (s scope) unless(holds bool, format string, args ...any) {
	if !holds {
		s.wrong(format, args...)
	}
}

func (s scope) warn(format string, args ...any) {
	if len(s.to.Warnings) < maxListed {
		s.to.Warnings = append(s.to.Warnings, s.line(format, args))
	}
}

// oneOf checks a word.
func (s scope) oneOf(word string, known ...string) {
	if !slices.Contains(known, word) {
		shown := make([]string, len(known))
		for i, k := range known {
			shown[i] = strconv.Quote(k)
		}
		s.wrong("%q is not one of %s", word, strings.Join(shown, ", "))
	}
}

// unique checks that names differ and are not empty.
func (s scope) unique(what string, names []string) {
	seen := map[string]bool{}
	for i, name := range names {
		s.unless(name != "", "%s %d has no name", what, i+1)
		s.unless(name == "" || !seen[name], "two %ss are called %q", what, name)
		seen[name] = true
	}
}

// get is *p, or the zero value.
func get[T any](p *T) T { return jobwire.Get(p) }

func span(d *jobwire.Duration) time.Duration { return time.Duration(get(d)) }

// Job checks a canonical job.
func Job(j *jobwire.Job) Findings {
	var found Findings
	s := scope{to: &found}
	kind := get(j.Type)
	id := get(j.ID)
	s.at("id").unless(id != "", "it is missing")
	s.at("id").unless(!strings.ContainsFunc(id, func(c rune) bool { return unicode.IsSpace(c) || c == 0 }),
		"%.60q has spaces or NUL", id)
	s.at("name").unless(get(j.Name) != "" && !strings.Contains(get(j.Name), "\x00"), "it is missing or has NUL")
	s.at("namespace").unless(get(j.Namespace) != "", "it is missing")
	s.at("region").unless(get(j.Region) != "", "it is missing")
	s.at("type").oneOf(kind, jobs.Service, jobs.Batch, jobs.System, jobs.SysBatch)
	s.at("priority").unless(get(j.Priority) >= 1 && get(j.Priority) <= 100, "%d is not from 1 to 100", get(j.Priority))
	s.at("datacenters").unless(!slices.Contains(j.Datacenters, ""), "there is an empty name")
	s.at("multiregion").unless(j.Multiregion == nil, "not supported: register the job in each region")
	rules(s, j.Rules, j.Spreads, kind)
	if p := j.Periodic; p != nil {
		periodicJob(s.at("periodic"), p, kind)
	}
	if p := j.ParameterizedJob; p != nil {
		parameterized(s.at("parameterized"), p, kind)
	}
	names := make([]string, len(j.TaskGroups))
	for i, g := range j.TaskGroups {
		names[i] = get(g.Name)
	}
	s.unless(len(names) > 0, "the job has no groups")
	s.unique("group", names)
	for _, g := range j.TaskGroups {
		group(s.at("group."+get(g.Name)), g, j)
	}
	return found
}

func periodicJob(s scope, p *jobwire.PeriodicConfig, kind string) {
	s.unless(kind == jobs.Batch || kind == jobs.SysBatch, "only batch and sysbatch jobs are periodic, not %s", kind)
	s.unless(get(p.Spec) == "" || len(p.Specs) == 0, "use cron or crons, not both")
	s.unless(get(p.SpecType) == "cron", "the type of schedule is cron, not %q", get(p.SpecType))
	specs := p.Specs
	if len(specs) == 0 {
		specs = []string{get(p.Spec)}
		if get(p.Spec) != "" {
			s.warn("cron is deprecated: use crons")
		}
	}
	if !get(p.Enabled) && specs[0] == "" {
		return
	}
	if _, err := periodic.Parse(&jobs.Periodic{Specs: specs, TimeZone: get(p.TimeZone)}); err != nil {
		s.wrong("%s", err)
	}
}

func parameterized(s scope, p *jobwire.ParameterizedJobConfig, kind string) {
	s.unless(kind == jobs.Batch, "only batch jobs are parameterized, not %s", kind)
	s.at("payload").oneOf(p.Payload, "", "optional", "required", "forbidden")
	s.at("meta_required").unique("key", p.MetaRequired)
	s.at("meta_optional").unique("key", p.MetaOptional)
	for _, key := range p.MetaRequired {
		s.unless(!slices.Contains(p.MetaOptional, key), "meta %q is required and optional", key)
	}
}

// rules checks constraints, affinities and spreads.
func rules(s scope, r jobwire.Rules, spreads []*jobwire.Spread, kind string) {
	perNode := kind == jobs.System || kind == jobs.SysBatch
	for i, c := range r.Constraints {
		constraint(s.at(fmt.Sprintf("constraint[%d]", i)), c.LTarget, c.Operand, c.RTarget)
	}
	for i, a := range r.Affinities {
		at := s.at(fmt.Sprintf("affinity[%d]", i))
		at.unless(!strings.HasPrefix(a.Operand, "distinct_"), "%s is for constraints", a.Operand)
		constraint(at, a.LTarget, a.Operand, a.RTarget)
		at.at("weight").unless(get(a.Weight) != 0 && get(a.Weight) >= -100 && get(a.Weight) <= 100,
			"%d is not from -100 to 100, or 0", get(a.Weight))
		at.unless(!perNode, "%s jobs have no affinities", kind)
	}
	for i, spread := range spreads {
		at := s.at(fmt.Sprintf("spread[%d]", i))
		at.unless(!perNode, "%s jobs have no spreads", kind)
		at.at("attribute").unless(spread.Attribute != "", "it is missing")
		at.at("weight").unless(get(spread.Weight) > 0 && get(spread.Weight) <= 100, "%d is not from 1 to 100",
			get(spread.Weight))
		sum, values := 0, map[string]bool{}
		for _, t := range spread.SpreadTarget {
			sum += int(t.Percent)
			at.unless(!values[t.Value], "two targets are for %q", t.Value)
			at.unless(t.Percent <= 100, "target %q: %d percent", t.Value, t.Percent)
			values[t.Value] = true
		}
		at.unless(sum <= 100, "the targets have %d percent together: at most 100", sum)
	}
}

func constraint(s scope, left, operand, right string) {
	if _, err := feasible.Compile(jobs.Constraint{Left: left, Operand: operand, Right: right}); err != nil {
		s.wrong("%s", err)
		return
	}
	switch operand {
	case feasible.DistinctHosts:
		if right != "" {
			_, err := strconv.ParseBool(right)
			s.at("value").unless(err == nil, "distinct_hosts is true or false, not %q", right)
		}
	case feasible.DistinctProperty:
		s.at("attribute").unless(left != "", "it is missing")
		if right != "" {
			n, err := strconv.ParseUint(right, 10, 31)
			s.at("value").unless(err == nil && n > 0, "distinct_property counts from 1, not %q", right)
		}
	case "is_set", "is_not_set":
		s.at("attribute").unless(left != "", "it is missing")
	default:
		s.at("attribute").unless(left != "", "it is missing")
		s.at("value").unless(right != "", "it is missing")
	}
}
