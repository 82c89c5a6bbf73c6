package usage

import (
	"encoding/json"
	"slices"
	"strings"
)

// A joint tag has the values of several tags of a product together, so that rows can be told by any of them at once:
// its name is theirs with commas between, and its value a list in JSON. Events need not have it.

// JointFields are the tags whose values a joint tag has; nil for any other tag.
func (p *Product) JointFields(tag string) []string {
	if !strings.Contains(tag, ",") {
		return nil
	}
	fields := strings.Split(tag, ",")
	for i, f := range fields {
		if !slices.Contains(p.Tags, f) || slices.Contains(fields[:i], f) {
			return nil
		}
	}
	return fields
}

// JointValue is the value of a joint tag: "" where that is too long for one.
func JointValue(values []string) string {
	text, err := json.Marshal(values)
	if err != nil || len(text) > MaxTagBytes {
		return ""
	}
	return string(text)
}

// joint is the value of a joint tag of an event, "" where the tag is none.
func (p *Product) joint(tag string, of []Field) string {
	fields := p.JointFields(tag)
	if fields == nil {
		return ""
	}
	values := make([]string, len(fields))
	for i, f := range fields {
		values[i], _ = Find(of, f)
	}
	return JointValue(values)
}

// Together finds the joint tag that has all of some tags, named with commas between, and the fewest others. Its values
// are into groups by those that are asked for, as JointValue has them; "" is a group of those that were too long. It is
// -1 where there is none.
func (p *Product) Together(tags string) (tag int, into func(value string) (group string, in bool)) {
	tag = -1
	asked := strings.Split(tags, ",")
	var best []string
	for i, name := range p.Tags {
		fields := p.JointFields(name)
		missing := func(f string) bool { return !slices.Contains(fields, f) }
		if fields != nil && !slices.ContainsFunc(asked, missing) && (tag < 0 || len(fields) < len(best)) {
			tag, best = i, fields
		}
	}
	return tag, func(value string) (string, bool) {
		var values []string
		if json.Unmarshal([]byte(value), &values) != nil || len(values) != len(best) {
			return "", true
		}
		group := make([]string, len(asked))
		for i, f := range asked {
			group[i] = values[slices.Index(best, f)]
		}
		return JointValue(group), true
	}
}
