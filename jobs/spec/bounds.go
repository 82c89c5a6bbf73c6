package spec

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

const (
	// maxDepth is how deep brackets, quotes and blocks nest: the parser recurses some frames for each.
	maxDepth = 100
	// maxForks is how many conditionals, template directives and signs a file has: the parser recurses for
	// those that follow each other, so they share one bound.
	maxForks = 4000
	// maxChain is how deep an expression's tree is, a chain of operators among it.
	maxChain = 500
	// maxBits is how long a number is: written out, it has about 1,200 digits.
	maxBits = 4096
	// stepBytes of text are one step.
	stepBytes = 64
	// tupleSquare: what finds one type for a tuple's elements compares all with all.
	tupleSquare = 256
)

// tooDeep looks at the tokens before the parser does.
func tooDeep(text []byte, name string) (hcl.Range, string) {
	tokens, _ := hclsyntax.LexConfig(text, name, hcl.InitialPos) // the parser tells what is wrong
	depth, forks := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp:
			depth++
		case hclsyntax.TokenTemplateControl:
			depth++
			forks++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			depth = max(depth-1, 0)
		case hclsyntax.TokenQuestion, hclsyntax.TokenBang, hclsyntax.TokenMinus:
			forks++
		}
		if depth > maxDepth {
			return t.Range, "nested too deep"
		}
		if forks > maxForks {
			return t.Range, "too many conditionals and signs"
		}
	}
	return hcl.Range{}, ""
}

// metered is an expression that counts its steps.
type metered struct {
	hclsyntax.Expression
	p *parser
}

func (m *metered) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	m.p.spend(1, m.Range())
	v, diags := m.Expression.Value(ctx)
	m.p.weigh(v, m.Range())
	return v, diags
}

// reference is a name. What only a node knows stays as it is written.
type reference struct {
	*hclsyntax.ScopeTraversalExpr
	p *parser
}

func (r *reference) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	r.p.spend(1, r.Range())
	root := r.Traversal.RootName()
	if !defined(ctx, root) {
		return r.atRunTime(root)
	}
	if r.p.undeclared(r.ScopeTraversalExpr) {
		return cty.DynamicVal, nil // it is recorded
	}
	v, diags := r.ScopeTraversalExpr.Value(ctx)
	r.p.weigh(v, r.Range())
	return v, diags
}

// runTime are the roots of what a node resolves; a name without a dot is a variable of the task's environment.
var runTime = []string{"node", "attr", "meta", "env", "device", "unique"}

func (r *reference) atRunTime(root string) (cty.Value, hcl.Diagnostics) {
	if len(r.Traversal) > 1 && !slices.Contains(runTime, root) {
		return cty.DynamicVal, hcl.Diagnostics{{Severity: hcl.DiagError, Subject: r.Range().Ptr(),
			Summary: "unknown name " + root + suggest(root, append([]string{"var", "local"}, runTime...))}}
	}
	return cty.StringVal("${" + string(r.Range().SliceBytes(r.p.sources[r.Range().Filename])) + "}"), nil
}

func defined(ctx *hcl.EvalContext, name string) bool {
	for ; ctx != nil; ctx = ctx.Parent() {
		if _, ok := ctx.Variables[name]; ok {
			return true
		}
	}
	return false
}

// budget is what is left of a parser's steps.
type budget struct{ left, max int }

func (p *budget) spend(steps int, at hcl.Range) {
	if p.left -= steps; p.left < 0 {
		panic(exhausted{at, p.tooMuch()})
	}
}

func (p *budget) tooMuch() string {
	return fmt.Sprintf("takes more than %d steps to evaluate: use smaller lists, texts or loops", p.max)
}

// weigh counts a value: all of it, as it would be written out, though parts of it may be shared.
func (p *budget) weigh(v cty.Value, at hcl.Range) {
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() || v.IsMarked() {
		return
	}
	switch t := v.Type(); {
	case t == cty.String:
		p.spend(len(v.AsString())/stepBytes, at)
	case t == cty.Number:
		if n := v.AsBigFloat(); n.IsInf() || n.MantExp(nil) > maxBits || n.MantExp(nil) < -maxBits {
			panic(exhausted{at, "the number is too large"})
		}
	case v.CanIterateElements():
		if t.IsTupleType() || t.IsObjectType() {
			n := v.LengthInt()
			p.spend(product(n, n)/tupleSquare, at)
		}
		for i := v.ElementIterator(); i.Next(); {
			p.spend(1, at)
			k, e := i.Element()
			if k.Type() == cty.String {
				p.weigh(k, at)
			}
			p.weigh(e, at)
		}
	}
}

// meter makes all expressions of a body count their steps.
func (p *parser) meter(b *hclsyntax.Body) {
	for _, a := range b.Attributes {
		a.Expr = p.wrap(a.Expr, 0)
	}
	for _, block := range b.Blocks {
		if block.Type == "dynamic" {
			for name, a := range block.Body.Attributes {
				if name != "iterator" { // a name, not an expression
					a.Expr = p.wrap(a.Expr, 0)
				}
			}
			for _, content := range block.Body.Blocks {
				p.meter(content.Body)
			}
			continue
		}
		p.meter(block.Body)
	}
}

// wrap makes an expression, and all within it, count their steps. No two places share an expression.
func (p *parser) wrap(e hclsyntax.Expression, depth int) hclsyntax.Expression {
	if depth++; depth > maxChain {
		panic(exhausted{e.Range(), "nested too deep"})
	}
	in := func(list ...*hclsyntax.Expression) {
		for _, inner := range list {
			if *inner != nil {
				*inner = p.wrap(*inner, depth)
			}
		}
	}
	switch e := e.(type) {
	case nil, *metered, *reference, *hclsyntax.LiteralValueExpr, *hclsyntax.AnonSymbolExpr:
	case *hclsyntax.ScopeTraversalExpr:
		p.references = append(p.references, e.Traversal)
		return &reference{e, p}
	case *hclsyntax.BinaryOpExpr:
		in(&e.LHS, &e.RHS)
	case *hclsyntax.UnaryOpExpr:
		in(&e.Val)
	case *hclsyntax.ConditionalExpr:
		in(&e.Condition, &e.TrueResult, &e.FalseResult)
	case *hclsyntax.ForExpr:
		in(&e.CollExpr, &e.KeyExpr, &e.ValExpr, &e.CondExpr)
	case *hclsyntax.FunctionCallExpr:
		for i := range e.Args {
			in(&e.Args[i])
		}
	case *hclsyntax.IndexExpr:
		in(&e.Collection, &e.Key)
	case *hclsyntax.ObjectConsExpr:
		for i := range e.Items {
			if key, ok := e.Items[i].KeyExpr.(*hclsyntax.ObjectConsKeyExpr); ok {
				if _, name := key.Wrapped.(*hclsyntax.ScopeTraversalExpr); !name { // a bare name is a key
					in(&key.Wrapped)
				}
			}
			in(&e.Items[i].ValueExpr)
		}
	case *hclsyntax.ParenthesesExpr:
		in(&e.Expression)
	case *hclsyntax.RelativeTraversalExpr:
		in(&e.Source)
	case *hclsyntax.SplatExpr:
		in(&e.Source, &e.Each)
	case *hclsyntax.TemplateExpr:
		for i := range e.Parts {
			in(&e.Parts[i])
		}
		if len(e.Parts) == 1 { // plain text: what it weighs is what the file has
			return e
		}
	case *hclsyntax.TemplateJoinExpr:
		in(&e.Tuple)
	case *hclsyntax.TemplateWrapExpr:
		in(&e.Wrapped)
	case *hclsyntax.TupleConsExpr:
		for i := range e.Exprs {
			in(&e.Exprs[i])
		}
	}
	return &metered{e, p}
}

// whole reads a whole number that fits 64 bits.
func whole(n *big.Float) (int64, bool) {
	i, exact := n.Int64()
	return i, exact == big.Exact && n.IsInt()
}
