package acl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/hcl/ast"
)

// Nomad's policies state rights to variables in a block of a namespace:
//
//	namespace "default" {
//	  policy = "read"
//	  variables {
//	    path "app/*" { capabilities = ["read", "write", "destroy"] }
//	  }
//	}
//
// Such a block stands in rules as it is: policy is a rule about jobs, each path one about variables. What has no
// counterpart is refused, so that nobody gets more than the text says. A namespace block without variables is none of
// Nomad's, and no rule.

// ofNomad tells whether a block of a namespace is of a policy of Nomad's.
func ofNomad(word string, item *ast.ObjectItem) (*ast.ObjectType, bool) {
	o, ok := item.Val.(*ast.ObjectType)
	if !ok || word != "namespace" || len(item.Keys) != 2 {
		return nil, false
	}
	return o, slices.ContainsFunc(o.List.Items, func(inner *ast.ObjectItem) bool {
		return len(inner.Keys) == 1 && keyText(inner.Keys[0]) == "variables"
	})
}

// glob splits a name with a * at its end.
func glob(here place, what, name string) (text string, prefix bool, err error) {
	text, prefix = strings.CutSuffix(name, "*")
	if strings.Contains(text, "*") {
		return "", false, fmt.Errorf("%v: %s %q: a * stands at the end alone here", here, what, name)
	}
	return text, prefix, nil
}

// namespace takes such a block.
func (r *reader) namespace(here place, name string, o *ast.ObjectType) error {
	text, prefix, err := glob(here, "namespace", name)
	if err != nil {
		return err
	}
	for _, item := range o.List.Items {
		at := at(item.Pos())
		switch v := item.Val.(type) {
		case *ast.LiteralType:
			level, err := literal(v)
			if err != nil {
				return err
			}
			l, ok := ParseLevel(Jobs, level)
			if !ok || keyText(item.Keys[0]) != "policy" {
				return fmt.Errorf("%v: namespace %q takes policy = deny, read or write, and variables", at, name)
			}
			r.rules = append(r.rules, Rule{Resource: Jobs, Prefix: prefix, Name: text, Level: l})
		case *ast.ObjectType:
			if keyText(item.Keys[0]) != "variables" || len(item.Keys) != 1 {
				return fmt.Errorf("%v: namespace %q takes no block but variables", at, name)
			}
			for _, path := range v.List.Items {
				if err := r.path(text, prefix, path); err != nil {
					return err
				}
			}
		default:
			return fmt.Errorf("%v: namespace %q: capabilities have no counterpart here: state policy = read or write", at,
				name)
		}
	}
	return nil
}

// path takes `path "app/*" { capabilities = ["read"] }`.
func (r *reader) path(namespace string, everywhere bool, item *ast.ObjectItem) error {
	here := at(item.Pos())
	o, ok := item.Val.(*ast.ObjectType)
	if !ok || len(item.Keys) != 2 || keyText(item.Keys[0]) != "path" || len(o.List.Items) != 1 ||
		len(o.List.Items[0].Keys) != 1 || keyText(o.List.Items[0].Keys[0]) != "capabilities" {
		return fmt.Errorf(`%v: variables take path "app/*" { capabilities = ["read"] }`, here)
	}
	name := keyText(item.Keys[1])
	text, prefix, err := glob(here, "path", name)
	if err != nil {
		return err
	}
	rule := Rule{Resource: Variable, Prefix: prefix, Name: namespace + "/" + text}
	if everywhere {
		if name != "*" {
			return fmt.Errorf("%v: path %q: in a namespace with a * only path \"*\" has a counterpart here", here, name)
		}
		rule.Name = namespace
	}
	list, ok := o.List.Items[0].Val.(*ast.ListType)
	if !ok {
		return fmt.Errorf("%v: path %q: capabilities are a list", here, name)
	}
	has := map[string]bool{}
	for _, node := range list.List {
		v, ok := node.(*ast.LiteralType)
		if !ok {
			return fmt.Errorf("%v: path %q: a capability is no string", here, name)
		}
		capability, err := literal(v)
		if err != nil {
			return err
		}
		if !slices.Contains([]string{"deny", "list", "read", "write", "destroy"}, capability) {
			return fmt.Errorf("%v: path %q: %q is no capability: use deny, list, read, write, destroy", here, name, capability)
		}
		has[capability] = true
	}
	switch {
	case has["deny"]:
		rule.Level = Deny
	case has["write"] && has["read"]:
		rule.Level = Write
	case has["read"] && !has["destroy"]:
		rule.Level = Read
	default:
		return fmt.Errorf("%v: path %q: listing needs read here, and writing and destroying need read and write: state them",
			here, name)
	}
	r.rules = append(r.rules, rule)
	return nil
}
