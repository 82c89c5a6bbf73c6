package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// variable is a declaration and what was assigned.
type variable struct {
	name        string
	at          hcl.Range
	kind        cty.Type
	defaults    *typeexpr.Defaults // of optional attributes
	value       cty.Value          // cty.NilVal: none
	validations []*hclsyntax.Body
}

// variables reads the declarations and what was assigned: the default, then the environment, files, and
// -var, later over earlier.
func (p *parser) variables(blocks, short []*hclsyntax.Block) {
	list := map[string]*variable{}
	for _, b := range blocks {
		if v := p.declare(b); v != nil {
			if first, twice := list[v.name]; twice {
				p.problem(b.TypeRange, "", "variable %q is declared on line %d already", v.name, first.at.Start.Line)
			}
			list[v.name] = v
		}
	}
	for _, b := range short { // variables { name = default }
		p.meter(b.Body)
		for _, a := range attributes(b.Body) {
			value, _ := p.value(a.Expr, p.root, "var."+a.Name)
			list[a.Name] = &variable{name: a.Name, at: a.NameRange, kind: cty.DynamicPseudoType, value: value}
		}
	}
	names := slices.Sorted(maps.Keys(list))
	p.declared["var"] = names
	for _, name := range names {
		if text, ok := p.o.Env[name]; ok {
			p.assign(list[name], text, "NOMAD_VAR_"+name)
		}
	}
	for _, f := range p.o.VarFiles {
		p.varFile(f, list)
	}
	for _, a := range p.o.Variables {
		if v := list[a.Name]; v != nil {
			p.assign(v, a.Text, "-var="+a.Name)
		} else {
			p.strange(hcl.Range{Filename: "-var=" + a.Name}, a.Name)
		}
	}
	values := map[string]cty.Value{}
	for _, name := range names {
		values[name] = p.settle(list[name])
	}
	p.root.Variables = map[string]cty.Value{"var": cty.ObjectVal(values), "local": cty.EmptyObjectVal}
	for _, name := range names {
		p.validate(list[name])
	}
}

// strange is a value for a variable that nobody declared.
func (p *parser) strange(at hcl.Range, name string) {
	if !p.o.Lax {
		p.problem(at, "", "variable %q is not declared in the job file%s", name, suggest(name, p.declared["var"]))
	}
}

func (p *parser) declare(b *hclsyntax.Block) *variable {
	if len(b.Labels) != 1 {
		p.problem(b.TypeRange, "", `a variable has one label: variable "name" { ... }`)
		return nil
	}
	v := &variable{name: b.Labels[0], at: b.TypeRange, kind: cty.DynamicPseudoType}
	field := "var." + v.name
	if !hclsyntax.ValidIdentifier(v.name) {
		p.problem(b.LabelRanges[0], "", "%q is not a name: use letters, digits, _ and -", v.name)
	}
	for _, a := range attributes(b.Body) {
		switch a.Name {
		case "type":
			var diags hcl.Diagnostics
			v.kind, v.defaults, diags = typeexpr.TypeConstraintWithDefaults(a.Expr)
			p.diagnose(diags, field)
		case "default":
			v.value, _ = p.value(p.wrap(a.Expr, 0), p.root, field)
		case "description", "sensitive":
			p.value(p.wrap(a.Expr, 0), p.root, field)
		default:
			p.problem(a.NameRange, field, "unknown argument %q%s", a.Name,
				suggest(a.Name, []string{"type", "default", "description", "sensitive"}))
		}
	}
	for _, inner := range b.Body.Blocks {
		if inner.Type != "validation" {
			p.problem(inner.TypeRange, field, "unknown block %q%s", inner.Type, suggest(inner.Type, []string{"validation"}))
			continue
		}
		p.meter(inner.Body)
		v.validations = append(v.validations, inner.Body)
	}
	return v
}

// assign reads a value as text: what is for a string is taken as it is.
func (p *parser) assign(v *variable, text, source string) {
	if v.kind == cty.String || v.kind == cty.DynamicPseudoType {
		p.spend(len(text)/stepBytes, v.at)
		v.value = cty.StringVal(text)
		return
	}
	at := hcl.Range{Filename: source}
	if len(text) > p.o.MaxBytes {
		p.problem(at, "", "%d bytes: at most %d are read", len(text), p.o.MaxBytes)
		return
	}
	if _, why := tooDeep([]byte(text), source); why != "" {
		p.problem(at, "", "%s", why)
		return
	}
	p.sources[source] = []byte(text)
	e, diags := hclsyntax.ParseExpression([]byte(text), source, hcl.InitialPos)
	if p.diagnose(diags, "var."+v.name) {
		v.value, _ = p.value(p.wrap(e, 0), p.root, "var."+v.name)
	}
}

func (p *parser) varFile(f File, list map[string]*variable) {
	body := p.parse(f.Name, f.Text)
	if body == nil {
		return
	}
	for _, b := range body.Blocks {
		p.problem(b.TypeRange, "", "a file of variables has no blocks: write name = value")
	}
	p.meter(body)
	for _, a := range attributes(body) {
		v := list[a.Name]
		if v == nil {
			p.strange(a.NameRange, a.Name)
			continue
		}
		v.value, _ = p.value(a.Expr, p.root, "var."+a.Name)
	}
}

// settle is a variable's value, of its type.
func (p *parser) settle(v *variable) cty.Value {
	if v.value == cty.NilVal {
		p.problem(v.at, "var."+v.name, "it has no value and no default: set -var %s=VALUE, NOMAD_VAR_%s or a -var-file",
			v.name, v.name)
		return cty.DynamicVal
	}
	value := v.value
	if v.defaults != nil && !value.IsNull() {
		value = v.defaults.Apply(value)
	}
	p.weigh(value, v.at)
	value, err := convert.Convert(value, v.kind)
	if err != nil {
		p.problem(v.at, "var."+v.name, "%s", err)
		return cty.DynamicVal
	}
	p.weigh(value, v.at)
	return value
}

// validate asks the conditions that a variable must meet.
func (p *parser) validate(v *variable) {
	field := "var." + v.name
	for _, b := range v.validations {
		condition, message := b.Attributes["condition"], b.Attributes["error_message"]
		if condition == nil || message == nil {
			p.problem(b.SrcRange, field, "a validation has condition and error_message")
			continue
		}
		result, ok := p.value(condition.Expr, p.root, field)
		if !ok {
			continue
		}
		result, err := convert.Convert(result, cty.Bool)
		if err != nil || result.IsNull() || !result.IsKnown() {
			p.problem(condition.SrcRange, field, "a condition is true or false")
			continue
		}
		if result.False() {
			text, _ := p.value(message.Expr, p.root, field)
			text, err = convert.Convert(text, cty.String)
			if err != nil || text.IsNull() || !text.IsKnown() {
				text = cty.StringVal("the value is not valid")
			}
			p.problem(v.at, field, "%s", text.AsString())
		}
	}
}

// local is a value that has a name.
type local struct {
	a     *hclsyntax.Attribute
	needs []string // other locals
	state int      // 0 new, 1 being evaluated, 2 done
}

// locals evaluates what locals blocks have, in the order that they need each other.
func (p *parser) locals(blocks []*hclsyntax.Block) {
	list := map[string]*local{}
	for _, b := range blocks {
		for _, inner := range b.Body.Blocks {
			p.problem(inner.TypeRange, "", "locals have no blocks: write name = value")
		}
		for _, a := range attributes(b.Body) {
			if _, twice := list[a.Name]; twice {
				p.problem(a.NameRange, "local."+a.Name, "it is defined twice")
			}
			p.references = nil
			a.Expr = p.wrap(a.Expr, 0)
			l := &local{a: a}
			for _, t := range p.references {
				if t.RootName() == "local" && len(t) > 1 {
					if step, ok := t[1].(hcl.TraverseAttr); ok {
						l.needs = append(l.needs, step.Name)
					}
				}
			}
			list[a.Name] = l
		}
	}
	names := slices.Sorted(maps.Keys(list))
	p.declared["local"] = names
	values := map[string]cty.Value{}
	for _, name := range names {
		p.local(name, list, values, nil)
	}
	p.root.Variables["local"] = cty.ObjectVal(values)
}

// local evaluates one, and before it what it needs.
func (p *parser) local(name string, list map[string]*local, values map[string]cty.Value, path []string) {
	l := list[name]
	if l == nil || l.state == 2 {
		return // that it is missing is told where it is used
	}
	path = append(path, name)
	if l.state == 1 || len(path) > maxChain {
		p.problem(l.a.NameRange, "local."+name, "it needs itself: %s", strings.Join(path[max(0, len(path)-10):], " -> "))
		return
	}
	l.state = 1
	for _, need := range l.needs {
		p.local(need, list, values, path)
	}
	l.state = 2
	p.spend(len(values), l.a.SrcRange)
	p.root.Variables["local"] = cty.ObjectVal(values)
	values[name], _ = p.value(l.a.Expr, p.root, "local."+name)
}

// undeclared reports whether a reference is to a variable or local that does not exist, and records it.
func (p *parser) undeclared(e *hclsyntax.ScopeTraversalExpr) bool {
	root := e.Traversal.RootName()
	names, ours := p.declared[root]
	if !ours || len(e.Traversal) < 2 {
		return false
	}
	step, ok := e.Traversal[1].(hcl.TraverseAttr)
	if !ok || slices.Contains(names, step.Name) {
		return false
	}
	p.problem(e.Range(), "", "%s.%s is not defined%s", root, step.Name, suggest(step.Name, names))
	return true
}

// value evaluates an expression. What cannot be known is an unknown value, and recorded.
func (p *parser) value(e hclsyntax.Expression, ctx *hcl.EvalContext, field string) (cty.Value, bool) {
	v, diags := e.Value(ctx)
	if !p.diagnose(diags, field) {
		return cty.DynamicVal, false
	}
	return v, v.IsWhollyKnown()
}
