package monitor

import (
	"errors"
	"fmt"
	"slices"
)

// VerbReplicate lets objects be read as they are stored, hashes of passwords too, by who copies them into another
// cluster. The contract does not have it: no role has it of itself but those with all verbs.
const VerbReplicate = "replicate"

// verbs are what a rule may allow; "*" is all of them.
var verbs = []string{"*", "get", "list", "create", "update", "delete", VerbReplicate}

// Validate returns what is wrong with the role.
func (r *Role) Validate() error {
	if err := ValidateName(r.Name); err != nil {
		return fmt.Errorf("the Role name %w", err)
	}
	if r.Namespace == "" {
		return errors.New("the Role namespace must be set")
	}
	return validRules("Role", r.Rules)
}

// Validate returns what is wrong with the cluster role.
func (r *ClusterRole) Validate() error {
	if err := ValidateName(r.Name); err != nil {
		return fmt.Errorf("the ClusterRole name %w", err)
	}
	if r.Namespace != "" {
		return errors.New("ClusterRole cannot have a namespace")
	}
	return validRules("ClusterRole", r.Rules)
}

func validRules(what string, rules []Rule) error {
	if len(rules) == 0 {
		return fmt.Errorf("a %s must have at least one rule", what)
	}
	for _, rule := range rules {
		if len(rule.Verbs) == 0 {
			return errors.New("the verbs of a rule must not be empty")
		}
		for _, v := range rule.Verbs {
			if !slices.Contains(verbs, v) {
				return fmt.Errorf("the verb %q is not valid", v)
			}
		}
		if len(rule.Resources) == 0 {
			return errors.New("the resources of a rule must not be empty")
		}
	}
	return nil
}

// Validate returns what is wrong with the binding.
func (b *RoleBinding) Validate() error {
	if err := ValidateName(b.Name); err != nil {
		return fmt.Errorf("the RoleBinding name %w", err)
	}
	if b.Namespace == "" {
		return errors.New("the RoleBinding namespace must be set")
	}
	return validBinding("RoleBinding", b.RoleRef, b.Subjects, "Role", "ClusterRole")
}

// Validate returns what is wrong with the binding.
func (b *ClusterRoleBinding) Validate() error {
	if err := ValidateName(b.Name); err != nil {
		return fmt.Errorf("the ClusterRoleBinding name %w", err)
	}
	if b.Namespace != "" {
		return errors.New("ClusterRoleBinding cannot have a namespace")
	}
	return validBinding("ClusterRoleBinding", b.RoleRef, b.Subjects, "ClusterRole")
}

func validBinding(what string, ref RoleRef, subjects []BoundTo, roles ...string) error {
	if !slices.Contains(roles, ref.Type) {
		return fmt.Errorf("roleRef type %q of a %s is not one of %q", ref.Type, what, roles)
	}
	if ref.Name == "" {
		return fmt.Errorf("roleRef name for %s is required", ref.Type)
	}
	if len(subjects) == 0 {
		return fmt.Errorf("a %s must have at least one subject", what)
	}
	for _, s := range subjects {
		if s.Type != "User" && s.Type != "Group" {
			return fmt.Errorf("subject type %q is not User or Group", s.Type)
		}
		if s.Name == "" {
			return fmt.Errorf("a subject of type %s needs a name", s.Type)
		}
	}
	return nil
}

// Allows reports whether the rule allows a verb on a kind of object, or on the one called name ("" for none in
// particular).
func (r *Rule) Allows(verb, resource, name string) bool {
	if !has(r.Verbs, verb) || !has(r.Resources, resource) {
		return false
	}
	return len(r.ResourceNames) == 0 || name != "" && slices.Contains(r.ResourceNames, name)
}

func has(list []string, word string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, word)
}
