package acl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/hashicorp/hcl/hcl/parser"
	"github.com/hashicorp/hcl/hcl/token"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/nesting"
)

// MaxRulesBytes bounds the text of one policy: reading it stays cheap, whatever it holds.
const MaxRulesBytes = 256 << 10

// maxRulesNesting bounds how deep a text may nest; no rule needs more than five levels.
const maxRulesNesting = 16

// Parse reads the rules of one policy in HCL or JSON. Errors are of kind Invalid and say where and what.
func Parse(text string) (rules []Rule, err error) {
	if len(text) > MaxRulesBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "the rules have %d bytes, the most is %d", len(text), MaxRulesBytes)
	}
	defer func() { // the library panics on some texts that its scanner lets pass
		if p := recover(); p != nil {
			rules, err = nil, errkind.Errorf(errkind.Invalid, "cannot read the rules: %v", p)
		}
	}()
	trimmed := strings.TrimSpace(text)
	var r reader
	if strings.HasPrefix(trimmed, "{") {
		err = r.json(text)
	} else {
		err = r.hcl(text)
	}
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	return r.rules, nil
}

// reader gathers the rules of one text.
type reader struct{ rules []Rule }

// place is where in the text something stands.
type place struct{ line, column int }

func (p place) String() string { return fmt.Sprintf("%d:%d", p.line, p.column) }

// setting is one key and value inside a rule's block.
type setting struct {
	at    place
	key   string
	value string
}

// stem splits a top-level word like key_prefix.
func stem(word string) (r Resource, prefix, ok bool) {
	base, prefix := strings.CutSuffix(word, "_prefix")
	r, ok = ParseResource(base)
	if !ok || r == Intention || prefix && !r.named() {
		return NoResource, false, false
	}
	return r, prefix, true
}

func unknownWord(at place, word string) error {
	return fmt.Errorf("%v: %q is no resource: use agent, event, identity, jobs, key, node, query, service, session, "+
		"usage or variable, also with _prefix, or acl, keyring, mesh, operator, peering", at, word)
}

// scalar takes `operator = "read"`.
func (r *reader) scalar(at place, word, level string) error {
	res, _, ok := stem(word)
	switch {
	case !ok:
		return unknownWord(at, word)
	case res.named():
		return fmt.Errorf("%v: %s needs a name and a block: %s \"name\" { policy = %q }", at, word, word, level)
	}
	l, ok := ParseLevel(res, level)
	if !ok {
		return badLevel(at, word, res, level)
	}
	r.rules = append(r.rules, Rule{Resource: res, Level: l})
	return nil
}

func badLevel(at place, what string, res Resource, level string) error {
	allowed := "deny, read or write"
	if res == Key {
		allowed = "deny, read, list or write"
	}
	return fmt.Errorf("%v: %s is %q: use %s", at, what, level, allowed)
}

// block takes `key "name" { policy = "read" }`.
func (r *reader) block(at place, word, name string, settings []setting) error {
	res, prefix, ok := stem(word)
	switch {
	case !ok:
		return unknownWord(at, word)
	case !res.named():
		return fmt.Errorf("%v: %s takes no name: %s = \"read\"", at, word, word)
	}
	rule := Rule{Resource: res, Prefix: prefix, Name: name}
	for _, s := range settings {
		switch {
		case s.key == "policy":
			if rule.Level, ok = ParseLevel(res, s.value); !ok {
				return badLevel(s.at, word+" "+quote(name)+" policy", res, s.value)
			}
		case s.key == "intentions" && (res == Service || res == Identity):
			if rule.Intentions, ok = ParseLevel(Intention, s.value); !ok {
				return badLevel(s.at, word+" "+quote(name)+" intentions", Intention, s.value)
			}
		default:
			return fmt.Errorf("%v: %s %q has no key %q", s.at, word, name, s.key)
		}
	}
	if rule.Level == Unset {
		return fmt.Errorf("%v: %s %q needs a policy: policy = \"read\"", at, word, name)
	}
	r.rules = append(r.rules, rule)
	return nil
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// hcl reads version 1 of the language.
func (r *reader) hcl(text string) error {
	if line := nesting.Deeper(text, maxRulesNesting); line > 0 {
		return fmt.Errorf("line %d: the rules nest deeper than %d levels", line, maxRulesNesting)
	}
	file, err := parser.Parse([]byte(text))
	if err != nil {
		return err
	}
	list, ok := file.Node.(*ast.ObjectList)
	if !ok {
		return errors.New("the rules are no list of blocks")
	}
	for _, item := range list.Items {
		if err := r.item(item); err != nil {
			return err
		}
	}
	return nil
}

func at(p token.Pos) place { return place{p.Line, p.Column} }

func keyText(k *ast.ObjectKey) string {
	s, _ := k.Token.Value().(string)
	return s
}

func (r *reader) item(item *ast.ObjectItem) error {
	if len(item.Keys) == 0 {
		return fmt.Errorf("%v: a block without a resource", at(item.Pos()))
	}
	word, here := keyText(item.Keys[0]), at(item.Keys[0].Pos())
	if ok, err := r.nomad(word, item); ok {
		return err
	}
	switch v := item.Val.(type) {
	case *ast.LiteralType:
		if len(item.Keys) > 1 {
			return fmt.Errorf("%v: %s takes a block: { policy = \"read\" }", here, word)
		}
		level, err := literal(v)
		if err != nil {
			return err
		}
		return r.scalar(here, word, level)
	case *ast.ObjectType:
		switch len(item.Keys) {
		case 1: // key = { "name" = { policy = "read" } }
			for _, inner := range v.List.Items {
				o, ok := inner.Val.(*ast.ObjectType)
				if !ok || len(inner.Keys) != 1 {
					return fmt.Errorf("%v: %s needs a name: %s \"name\" { policy = \"read\" }", at(inner.Pos()), word, word)
				}
				if err := r.hclBlock(here, word, keyText(inner.Keys[0]), o); err != nil {
					return err
				}
			}
			return nil
		case 2:
			return r.hclBlock(here, word, keyText(item.Keys[1]), v)
		}
	}
	return fmt.Errorf("%v: %s takes one name and a block", here, word)
}

func (r *reader) hclBlock(here place, word, name string, o *ast.ObjectType) error {
	settings := make([]setting, 0, len(o.List.Items))
	for _, item := range o.List.Items {
		v, ok := item.Val.(*ast.LiteralType)
		if !ok || len(item.Keys) != 1 {
			return fmt.Errorf("%v: %s %q holds a block, it takes policy = \"read\" alone", at(item.Pos()), word, name)
		}
		value, err := literal(v)
		if err != nil {
			return err
		}
		settings = append(settings, setting{at: at(item.Keys[0].Pos()), key: keyText(item.Keys[0]), value: value})
	}
	return r.block(here, word, name, settings)
}

func literal(v *ast.LiteralType) (string, error) {
	if v.Token.Type == token.STRING || v.Token.Type == token.HEREDOC {
		if s, ok := v.Token.Value().(string); ok {
			return s, nil
		}
	}
	return "", fmt.Errorf("%v: %s is no string", at(v.Pos()), v.Token.Text)
}
