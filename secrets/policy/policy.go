package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Capability is a set of what a rule allows; Deny overrules the rest.
type Capability uint16

// The capabilities.
const (
	Deny Capability = 1 << iota
	Create
	Read
	Update
	Delete
	List
	Sudo
	Patch
	Scan
	Subscribe
	Recover
)

var capabilities = map[string]Capability{"deny": Deny, "create": Create, "read": Read, "update": Update,
	"delete": Delete, "list": List,
	"sudo": Sudo, "patch": Patch, "scan": Scan, "subscribe": Subscribe, "recover": Recover}

// shorthands are the words of the oldest form, `policy = "read"`.
var shorthands = map[string]Capability{"deny": Deny, "read": Read | List, "write": Create | Read | Update | Delete |
	List | Patch,
	"sudo": Create | Read | Update | Delete | List | Patch | Sudo}

// Policy is one policy as its author wrote it.
type Policy struct {
	Name  string
	Paths []Path
}

// Path is one rule.
type Path struct {
	Pattern      string // without a leading slash; "*" at the end is any rest, "+" any one segment
	Capabilities Capability
	Required     []string         // parameters, in lower case
	Allowed      map[string][]any // by parameter in lower case; nil: no restriction; "*": the rest
	Denied       map[string][]any
	MinWrap      time.Duration
	MaxWrap      time.Duration
}

// Parse reads a policy in HCL or JSON. Errors are of kind Invalid and say where and what.
func Parse(name, text string) (*Policy, error) {
	p, err := parse(name, text)
	return p, errkind.E(errkind.Invalid, "", err)
}

func parse(name, text string) (*Policy, error) {
	tree, err := read(text)
	if err != nil {
		return nil, err
	}
	p := &Policy{Name: strings.ToLower(name)}
	for _, m := range tree {
		switch m.key {
		case "name":
		case "path":
			rules, ok := m.value.(object)
			if !ok {
				return nil, fmt.Errorf("line %d: path takes a pattern and a block: path \"secret/*\" { ... }", m.line)
			}
			for _, rule := range rules {
				path, err := readPath(rule)
				if err != nil {
					return nil, fmt.Errorf("path %q: %w", rule.key, err)
				}
				p.Paths = append(p.Paths, *path)
			}
		default:
			return nil, fmt.Errorf("line %d: invalid key %q: a policy holds path blocks", m.line, m.key)
		}
	}
	return p, nil
}

func readPath(rule member) (*Path, error) {
	body, ok := rule.value.(object)
	if !ok {
		return nil, fmt.Errorf("line %d: takes a block", rule.line)
	}
	path := &Path{Pattern: strings.TrimPrefix(rule.key, "/")}
	if err := checkPattern(path.Pattern); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, m := range body {
		if seen[m.key] {
			return nil, fmt.Errorf("line %d: %s is there twice", m.line, m.key)
		}
		seen[m.key] = true
		if err := path.set(m); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", m.line, m.key, err)
		}
	}
	if path.MaxWrap > 0 && path.MinWrap > path.MaxWrap {
		return nil, errors.New("max_wrapping_ttl cannot be less than min_wrapping_ttl")
	}
	return path, nil
}

func checkPattern(pattern string) error {
	if strings.Contains(pattern, "+*") {
		return errors.New("\"+*\" is no wildcard: \"+\" stands for a whole segment, \"*\" for the rest")
	}
	return nil
}

func (p *Path) set(m member) (err error) {
	switch m.key {
	case "capabilities":
		err = p.setCapabilities(m.value)
	case "policy":
		word, _ := m.value.(string)
		c, ok := shorthands[word]
		if !ok {
			return fmt.Errorf("%v is none of deny, read, write, sudo", m.value)
		}
		p.Capabilities |= c
	case "required_parameters":
		p.Required, err = lowered(m.value)
	case "allowed_parameters":
		p.Allowed, err = parameters(m.value)
	case "denied_parameters":
		p.Denied, err = parameters(m.value)
	case "min_wrapping_ttl":
		p.MinWrap, err = duration(m.value)
	case "max_wrapping_ttl":
		p.MaxWrap, err = duration(m.value)
	case "comment", "mfa_methods", "control_group", "pagination_limit", "expiration",
		"list_scan_response_keys_filter_path", "subscribe_event_types":
		// known words of other editions, without an effect here
	default:
		err = errors.New("is no key of a path block")
	}
	return err
}

func (p *Path) setCapabilities(value any) error {
	list, err := words(value)
	if err != nil {
		return err
	}
	for _, word := range list {
		c, ok := capabilities[word]
		if !ok {
			return fmt.Errorf("invalid capability %q: use create, read, update, patch, delete, list, sudo or deny", word)
		}
		p.Capabilities |= c
	}
	if p.Capabilities&Deny != 0 {
		p.Capabilities = Deny
	}
	return nil
}

func words(value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, errors.New("takes a list of words")
	}
	var out []string
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%v is no word", v)
		}
		out = append(out, s)
	}
	return out, nil
}

func lowered(value any) ([]string, error) {
	list, err := words(value)
	for i := range list {
		list[i] = strings.ToLower(list[i])
	}
	return list, err
}

func parameters(value any) (map[string][]any, error) {
	body, ok := value.(object)
	if !ok {
		return nil, errors.New("takes a block of parameters, each with a list of values")
	}
	out := map[string][]any{}
	for _, m := range body {
		list, ok := m.value.([]any)
		if !ok {
			return nil, fmt.Errorf("%s takes a list of values", m.key)
		}
		out[strings.ToLower(m.key)] = list
	}
	return out, nil
}

// secondsMost is secrets.MaxDuration in seconds.
const secondsMost = 1_280_000 * 3600

// duration takes seconds or Go's form.
func duration(value any) (time.Duration, error) {
	var d time.Duration
	switch v := value.(type) {
	case float64:
		if math.Abs(v) > secondsMost {
			return 0, fmt.Errorf("%v is longer than %d seconds", value, int64(secondsMost))
		}
		d = time.Duration(v * float64(time.Second))
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && max(n, -n) <= secondsMost {
			d = time.Duration(n) * time.Second
		} else if d, err = time.ParseDuration(v); err != nil {
			return 0, fmt.Errorf("%q is no duration", v)
		}
	default:
		return 0, fmt.Errorf("%v is no duration", value)
	}
	if d > secondsMost*time.Second {
		return 0, fmt.Errorf("%v is longer than %d seconds", value, int64(secondsMost))
	}
	if d < 0 {
		return 0, fmt.Errorf("%v is negative", value)
	}
	return d, nil
}
