package acl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/hcl/ast"
)

// Policies of Nomad's stand in rules as they are:
//
//	namespace "default" {
//	  policy       = "read"
//	  capabilities = ["dispatch-job"]
//	  variables {
//	    path "app/*" { capabilities = ["read", "write", "destroy"] }
//	  }
//	}
//	node { policy = "read" }
//
// The block that names a namespace most closely is the only one of a policy that counts there, as in Nomad: it gives
// nothing that it does not list. Blocks about quotas, plug-ins, host volumes and node pools are checked and give
// nothing: rights to pools are those to nodes, and the others do not exist here.

// wordNamespace begins a block about a namespace.
const wordNamespace = "namespace"

// scalarBlocks are Nomad's blocks without a name, by word: what they are about (NoResource: nothing that exists here)
// and the levels that they take.
var scalarBlocks = map[string]struct {
	resource Resource
	levels   []string
}{
	"node":     {JobsNode, []string{"deny", "read", "write"}},
	"agent":    {JobsAgent, []string{"deny", "read", "write"}},
	"operator": {JobsOperator, []string{"deny", "read", "write"}},
	"quota":    {NoResource, []string{"deny", "read", "write"}},
	"plugin":   {NoResource, []string{"deny", "list", "read"}},
}

// idleBlocks are Nomad's blocks with a name that give nothing here, and the capabilities that they take.
var idleBlocks = map[string][]string{
	"host_volume": {"deny", "mount-readonly", "mount-readwrite"},
	"node_pool":   {"deny", "delete", "read", "write"},
}

// jobRights are the capabilities of a namespace. Those that are 0 are about what does not exist here.
var jobRights = map[string]Rights{
	"list-jobs": rightOf(JobsList), "read-job": rightOf(JobsRead) | rightOf(JobsScaling), "parse-job": 0,
	"submit-job": rightOf(JobsSubmit) | rightOf(JobsScale), "dispatch-job": rightOf(JobsDispatch),
	"scale-job": rightOf(JobsScale),
	"read-logs": rightOf(JobsLogs), "read-fs": rightOf(JobsFiles) | rightOf(JobsLogs),
	"alloc-exec": rightOf(JobsExec), "alloc-node-exec": rightOf(JobsExecRaw), "alloc-lifecycle": rightOf(JobsLifecycle),
	"read-job-scaling": rightOf(JobsScaling), "list-scaling-policies": rightOf(JobsScaling),
	"read-scaling-policy": rightOf(JobsScaling),
	"csi-register-plugin": 0, "csi-write-volume": 0, "csi-read-volume": 0, "csi-list-volume": 0, "csi-mount-volume": 0,
	"host-volume-create": 0, "host-volume-register": 0, "host-volume-read": 0, "host-volume-write": 0,
	"host-volume-delete": 0, "sentinel-override": 0, "submit-recommendation": 0,
}

// namespacePolicies are the capabilities that stand behind the word of a policy.
var namespacePolicies = map[string]Rights{
	"deny": 0,
	"read": rightOf(JobsList) | rightOf(JobsRead) | rightOf(JobsScaling),
	"write": rightOf(JobsList) | rightOf(JobsRead) | rightOf(JobsScaling) | rightOf(JobsSubmit) | rightOf(JobsDispatch) |
		rightOf(JobsScale) | rightOf(JobsLogs) | rightOf(JobsFiles) | rightOf(JobsExec) | rightOf(JobsLifecycle),
	"scale": rightOf(JobsScale) | rightOf(JobsScaling),
}

var variableRights = map[string]Rights{"list": rightOf(VariableList), "read": rightOf(VariableRead),
	"write": rightOf(VariableWrite), "destroy": rightOf(VariableDestroy)}

// nomad takes an item that is a block of Nomad's; ok is false for all others.
func (r *reader) nomad(word string, item *ast.ObjectItem) (ok bool, err error) {
	o, block := item.Val.(*ast.ObjectType)
	if !block {
		return false, nil
	}
	here := at(item.Keys[0].Pos())
	idle, named := idleBlocks[word]
	scalar, single := scalarBlocks[word]
	switch {
	case word == wordNamespace || named:
		if len(item.Keys) != 2 {
			return true, fmt.Errorf("%v: %s takes one name and a block", here, word)
		}
		name := keyText(item.Keys[1])
		if word == wordNamespace {
			return true, r.namespace(here, name, o)
		}
		_, _, err := r.policy(fmt.Sprintf("%s %q", word, name), here, o, []string{"deny", "read", "write"}, idle, nil)
		return true, err
	case single && len(item.Keys) == 1 && settings(o):
		level, _, err := r.policy(word, here, o, scalar.levels, nil, nil)
		if err == nil && scalar.resource != NoResource {
			l, _ := ParseLevel(scalar.resource, level) // one of its levels
			r.rules = append(r.rules, Rule{Resource: scalar.resource, Level: l})
		}
		return true, err
	}
	return false, nil
}

// settings tells whether a block holds values, as node { policy = "read" }, and no blocks by name.
func settings(o *ast.ObjectType) bool {
	return !slices.ContainsFunc(o.List.Items, func(item *ast.ObjectItem) bool {
		_, inner := item.Val.(*ast.ObjectType)
		return inner
	})
}

// policy reads policy = "word" and capabilities = [...] of a block. One of them must be there. Blocks inside go to
// inner; nil refuses them.
func (r *reader) policy(what string, here place, o *ast.ObjectType, levels, capabilities []string,
	inner func(*ast.ObjectItem) (bool, error)) (level string, list []string, err error) {
	blocks := false
	for _, item := range o.List.Items {
		if inner != nil {
			took, err := inner(item)
			if err != nil {
				return "", nil, err
			}
			if blocks = blocks || took; took {
				continue
			}
		}
		at, key := at(item.Pos()), ""
		if len(item.Keys) == 1 {
			key = keyText(item.Keys[0])
		}
		switch v := item.Val.(type) {
		case *ast.LiteralType:
			text, err := literal(v)
			switch {
			case err != nil:
				return "", nil, err
			case key != "policy":
				return "", nil, fmt.Errorf("%v: %s has no key %q", at, what, key)
			case !slices.Contains(levels, text):
				return "", nil, fmt.Errorf("%v: %s policy is %q: use %s", at, what, text, strings.Join(levels, ", "))
			}
			level = text
		case *ast.ListType:
			if key != "capabilities" || capabilities == nil {
				return "", nil, fmt.Errorf("%v: %s has no list %q", at, what, key)
			}
			if list, err = texts(at, what, v, capabilities); err != nil {
				return "", nil, err
			}
		default:
			return "", nil, fmt.Errorf("%v: %s has no block %q", at, what, key)
		}
	}
	if level == "" && list == nil && !blocks {
		return "", nil, fmt.Errorf("%v: %s needs a policy: policy = \"read\"", here, what)
	}
	return level, list, nil
}

// texts reads a list of known words.
func texts(here place, what string, v *ast.ListType, known []string) ([]string, error) {
	out := []string{}
	for _, node := range v.List {
		one, ok := node.(*ast.LiteralType)
		if !ok {
			return nil, fmt.Errorf("%v: %s: a capability is no string", here, what)
		}
		text, err := literal(one)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(known, text) {
			return nil, fmt.Errorf("%v: %s: %q is no capability: use %s", here, what, text, strings.Join(known, ", "))
		}
		out = append(out, text)
	}
	return out, nil
}

// words are the capabilities of a map, and deny.
func words(m map[string]Rights) []string { return append(slices.Sorted(maps.Keys(m)), "deny") }

// glob splits a name with a * at its end.
func glob(here place, what, name string) (text string, prefix bool, err error) {
	text, prefix = strings.CutSuffix(name, "*")
	if strings.Contains(text, "*") {
		return "", false, fmt.Errorf("%v: %s %q: a * stands at the end alone here", here, what, name)
	}
	return text, prefix, nil
}

// namespace takes a block about a namespace.
func (r *reader) namespace(here place, name string, o *ast.ObjectType) error {
	text, prefix, err := glob(here, wordNamespace, name)
	if err != nil {
		return err
	}
	variables := []Rule{{Resource: Variable, Prefix: true, Name: text + "/", Level: None}}
	if prefix {
		variables[0].Name = text
	}
	inner := func(item *ast.ObjectItem) (bool, error) {
		block, ok := item.Val.(*ast.ObjectType)
		if !ok || len(item.Keys) != 1 || keyText(item.Keys[0]) != "variables" {
			return false, nil
		}
		for _, path := range block.List.Items {
			rule, err := variablePath(text, prefix, path)
			if err != nil {
				return true, err
			}
			variables = append(variables, rule)
		}
		return true, nil
	}
	level, list, err := r.policy(fmt.Sprintf("namespace %q", name), here, o, slices.Sorted(maps.Keys(namespacePolicies)),
		words(jobRights), inner)
	if err != nil {
		return err
	}
	rule := Rule{Resource: Jobs, Prefix: prefix, Name: text, Level: None, Can: namespacePolicies[level]}
	for _, word := range list {
		rule.Can |= jobRights[word]
	}
	switch {
	case level == "deny" || slices.Contains(list, "deny"):
		rule.Level, rule.Can = Deny, 0
	case rule.Can&namespacePolicies["write"] == namespacePolicies["write"]:
		rule.Level = Write
	case rule.Can&namespacePolicies["read"] == namespacePolicies["read"]:
		rule.Level = Read
	}
	r.rules = append(append(r.rules, rule), variables...)
	return nil
}

// variablePath takes `path "app/*" { capabilities = ["read"] }`.
func variablePath(namespace string, everywhere bool, item *ast.ObjectItem) (rule Rule, err error) {
	here := at(item.Pos())
	o, ok := item.Val.(*ast.ObjectType)
	if !ok || len(item.Keys) != 2 || keyText(item.Keys[0]) != "path" || len(o.List.Items) != 1 ||
		len(o.List.Items[0].Keys) != 1 || keyText(o.List.Items[0].Keys[0]) != "capabilities" {
		return rule, fmt.Errorf(`%v: variables take path "app/*" { capabilities = ["read"] }`, here)
	}
	name := keyText(item.Keys[1])
	text, prefix, err := glob(here, "path", name)
	if err != nil {
		return rule, err
	}
	rule = Rule{Resource: Variable, Prefix: prefix, Name: namespace + "/" + text, Level: None}
	if everywhere {
		if name != "*" {
			return rule, fmt.Errorf("%v: path %q: in a namespace with a * only path \"*\" has a counterpart here", here, name)
		}
		rule.Name = namespace
	}
	list, ok := o.List.Items[0].Val.(*ast.ListType)
	if !ok {
		return rule, fmt.Errorf("%v: path %q: capabilities are a list", here, name)
	}
	has, err := texts(here, fmt.Sprintf("path %q", name), list, words(variableRights))
	if err != nil {
		return rule, err
	}
	for _, word := range has {
		rule.Can |= variableRights[word]
	}
	all := rightOf(VariableRead) | rightOf(VariableWrite)
	switch {
	case len(has) == 0:
		return rule, fmt.Errorf("%v: path %q: the capabilities are empty", here, name)
	case slices.Contains(has, "deny"):
		rule.Level, rule.Can = Deny, 0
	case rule.Can&all == all:
		rule.Level = Write
	case rule.Can&rightOf(VariableRead) != 0:
		rule.Level = Read
	}
	return rule, nil
}
