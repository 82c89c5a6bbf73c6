package feasible

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/pattern"
)

// The operands that do not look at one node alone.
const (
	DistinctHosts    = "distinct_hosts"
	DistinctProperty = "distinct_property"
)

// Target is one side of a constraint: a property of nodes, or plain text.
type Target struct {
	kind targetKind
	key  string
}

type targetKind uint8

const (
	literal targetKind = iota
	nodeID
	nodeName
	datacenter
	nodeClass
	nodePool
	attribute
	meta
	unknown // looks like a property and is none: never found
)

// ParseTarget reads ${node.x}, ${attr.x}, ${meta.x}; what else there is stands for itself.
func ParseTarget(text string) Target {
	inner, ok := strings.CutPrefix(text, "${")
	if !ok || !strings.HasSuffix(inner, "}") {
		return Target{literal, text}
	}
	inner = strings.TrimSuffix(inner, "}")
	switch inner {
	case "node.unique.id":
		return Target{kind: nodeID}
	case "node.unique.name":
		return Target{kind: nodeName}
	case "node.datacenter":
		return Target{kind: datacenter}
	case "node.class":
		return Target{kind: nodeClass}
	case "node.pool":
		return Target{kind: nodePool}
	}
	if key, ok := strings.CutPrefix(inner, "attr."); ok {
		return Target{attribute, key}
	}
	if key, ok := strings.CutPrefix(inner, "meta."); ok {
		return Target{meta, key}
	}
	return Target{kind: unknown}
}

// Unique reports whether the nodes of one computed class may differ in t.
func (t Target) Unique() bool {
	switch t.kind {
	case nodeID, nodeName:
		return true
	case attribute, meta:
		return strings.HasPrefix(t.key, "unique.")
	}
	return false
}

// Value is what t is on a node.
func (t Target) Value(n *jobs.Node) (value string, found bool) {
	switch t.kind {
	case literal:
		return t.key, true
	case nodeID:
		return n.ID.String(), true
	case nodeName:
		return n.Name, true
	case datacenter:
		return n.Datacenter, true
	case nodeClass:
		return n.Class, true
	case nodePool:
		return n.InPool(), true
	case attribute:
		value, found = n.Attributes[t.key]
	case meta:
		value, found = n.Meta[t.key]
	}
	return value, found
}

// Matcher is a compiled constraint on one node.
type Matcher struct {
	left, right Target
	operand     string
	// Compiled when the right side is plain text, which it nearly always is.
	regexp   *regexp.Regexp
	versions versions
}

// Compile reads a constraint, and reports what cannot be read of it.
func Compile(c jobs.Constraint) (Matcher, error) {
	m := Matcher{left: ParseTarget(c.Left), right: ParseTarget(c.Right), operand: c.Operand}
	var err error
	switch c.Operand {
	case "", "=", "==", "is":
		m.operand = "="
	case "!=", "not":
		m.operand = "!="
	case "<", "<=", ">", ">=", "set_contains_any", "is_set", "is_not_set", DistinctHosts, DistinctProperty:
	case "set_contains", "set_contains_all":
		m.operand = "set_contains"
	case "regexp":
		if m.right.kind == literal {
			m.regexp, err = pattern.Compile(c.Right)
		}
	case "version", "semver":
		if m.right.kind == literal {
			m.versions, err = parseVersions(c.Right, c.Operand == "semver")
		}
	default:
		return m, fmt.Errorf("constraint %q: unknown operator %q", c, c.Operand)
	}
	if err != nil {
		return m, fmt.Errorf("constraint %q: %w", c, err)
	}
	return m, nil
}

// Unique reports whether the nodes of one computed class may differ in what m says of them.
func (m *Matcher) Unique() bool { return m.left.Unique() || m.right.Unique() }

// Meets reports whether a node meets the constraint.
func (m *Matcher) Meets(n *jobs.Node) bool {
	left, leftOK := m.left.Value(n)
	right, rightOK := m.right.Value(n)
	return m.meets(left, leftOK, right, rightOK)
}

func (m *Matcher) meets(left string, leftOK bool, right string, rightOK bool) bool {
	switch m.operand {
	case "is_set":
		return leftOK
	case "is_not_set":
		return !leftOK
	case "!=":
		return leftOK != rightOK || left != right // what a node has not differs from everything
	}
	if !leftOK || !rightOK {
		return false
	}
	switch m.operand {
	case "=":
		return left == right
	case "<", "<=", ">", ">=":
		return inOrder(m.operand, compare(left, right))
	case "regexp":
		re := m.regexp
		if re == nil {
			var err error
			if re, err = pattern.Compile(right); err != nil {
				return false
			}
		}
		return re.MatchString(left)
	case "version", "semver":
		list := m.versions
		if list.check == nil {
			var err error
			if list, err = parseVersions(right, m.operand == "semver"); err != nil {
				return false
			}
		}
		return list.meets(left)
	case "set_contains":
		have := set(left)
		return !slices.ContainsFunc(set(right), func(s string) bool { return !slices.Contains(have, s) })
	case "set_contains_any":
		have := set(left)
		return slices.ContainsFunc(set(right), func(s string) bool { return slices.Contains(have, s) })
	}
	return true // distinct_hosts and distinct_property are decided where all allocations are known
}

func set(text string) []string {
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// compare is numeric when both are numbers, and by text otherwise.
func compare(a, b string) int {
	if x, err := strconv.ParseInt(a, 10, 64); err == nil {
		if y, err := strconv.ParseInt(b, 10, 64); err == nil {
			return sign(x < y, x > y)
		}
	}
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		if y, err := strconv.ParseFloat(b, 64); err == nil {
			return sign(x < y, x > y)
		}
	}
	return strings.Compare(a, b)
}

func sign(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

func inOrder(operand string, c int) bool {
	switch operand {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// versions is a list of conditions on a version; the zero value has none compiled.
type versions struct {
	strict bool
	check  func(*version.Version) bool
}

// maxVersionBytes is far above what anybody calls a version; the library's expressions are not linear in it.
const maxVersionBytes = 512

// parseVersions reads "version" lists, which hide pre-releases unless they are asked for, and "semver"
// lists, which order them as Semantic Versioning 2 does.
func parseVersions(text string, strict bool) (versions, error) {
	if len(text) > maxVersionBytes {
		return versions{}, fmt.Errorf("a version constraint has at most %d bytes", maxVersionBytes)
	}
	if !strict {
		list, err := version.NewConstraint(text)
		if err != nil {
			return versions{}, err
		}
		return versions{check: list.Check}, nil
	}
	type condition struct {
		operand string
		than    *version.Version
	}
	var list []condition
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		bare := strings.TrimLeft(part, "<>=!")
		operand := part[:len(part)-len(bare)]
		if !slices.Contains([]string{"", "=", "!=", "<", "<=", ">", ">="}, operand) {
			return versions{}, fmt.Errorf("malformed constraint: %s", part)
		}
		v, err := version.NewSemver(strings.TrimSpace(bare))
		if err != nil {
			return versions{}, err
		}
		list = append(list, condition{operand, v})
	}
	return versions{strict: true, check: func(v *version.Version) bool {
		return !slices.ContainsFunc(list, func(c condition) bool {
			order := v.Compare(c.than)
			switch c.operand {
			case "", "=":
				return order != 0
			case "!=":
				return order == 0
			}
			return !inOrder(c.operand, order)
		})
	}}, nil
}

func (l versions) meets(text string) bool {
	if len(text) > maxVersionBytes {
		return false
	}
	v, err := version.NewVersion(text)
	if l.strict {
		v, err = version.NewSemver(text)
	}
	return err == nil && l.check(v)
}
