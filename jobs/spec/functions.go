package spec

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"corbel.dev/corbel/kit/pattern"
)

// functions are what expressions may call, each within the parser's steps.
func (p *parser) functions() map[string]function.Function {
	list := map[string]function.Function{}
	for _, some := range []map[string]function.Function{library(), text(), hashes(), addresses(), p.outside()} {
		for name, f := range some {
			list[name] = p.guard(name, f)
		}
	}
	// These get expressions, not values: what they evaluate counts its steps itself.
	list["try"], list["can"], list["convert"] = tryfunc.TryFunc, tryfunc.CanFunc, typeexpr.ConvertFunc
	return list
}

// library are the functions that need nothing of ours.
func library() map[string]function.Function {
	return map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "log": stdlib.LogFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "pow": stdlib.PowFunc,
		"signum": stdlib.SignumFunc, "chomp": stdlib.ChompFunc, "format": stdlib.FormatFunc,
		"formatlist": stdlib.FormatListFunc, "indent": stdlib.IndentFunc, "join": stdlib.JoinFunc,
		"lower": stdlib.LowerFunc, "regex": stdlib.RegexFunc, "regex_replace": stdlib.RegexReplaceFunc,
		"regexall": stdlib.RegexAllFunc, "replace": stdlib.ReplaceFunc, "split": stdlib.SplitFunc,
		"strlen": stdlib.StrlenFunc, "strrev": stdlib.ReverseFunc, "substr": stdlib.SubstrFunc, "title": stdlib.TitleFunc,
		"trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc,
		"trimsuffix": stdlib.TrimSuffixFunc, "upper": stdlib.UpperFunc, "chunklist": stdlib.ChunklistFunc,
		"coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc, "compact": stdlib.CompactFunc,
		"concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc, "csvdecode": stdlib.CSVDecodeFunc,
		"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc,
		"formatdate": stdlib.FormatDateFunc, "hasindex": stdlib.HasIndexFunc, "jsondecode": stdlib.JSONDecodeFunc,
		"jsonencode": stdlib.JSONEncodeFunc, "keys": stdlib.KeysFunc, "lookup": stdlib.LookupFunc,
		"merge": stdlib.MergeFunc, "range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc,
		"sethaselement": stdlib.SetHasElementFunc, "setintersection": stdlib.SetIntersectionFunc,
		"setproduct": stdlib.SetProductFunc, "setsubtract": stdlib.SetSubtractFunc, "setunion": stdlib.SetUnionFunc,
		"setsymmetricdifference": stdlib.SetSymmetricDifferenceFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc,
		"timeadd": stdlib.TimeAddFunc, "values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,
		"tobool": stdlib.MakeToFunc(cty.Bool), "tonumber": stdlib.MakeToFunc(cty.Number),
		"tostring": stdlib.MakeToFunc(cty.String), "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
		"tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),
	}
}

// guard lets f run when its arguments, and what it would make of them, are within the steps that are left.
func (p *parser) guard(name string, f function.Function) function.Function {
	return function.New(&function.Spec{
		Params: f.Params(), VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			steps := 1
			for _, a := range args {
				steps = sum(steps, p.size(a))
			}
			if dear := costs[name]; dear != nil && known(args) {
				more, err := dear(&p.budget, args)
				if err != nil {
					return cty.NilType, err
				}
				steps = sum(steps, more)
			}
			if p.left -= steps; p.left < 0 { // not thrown: the library would take it for a bug of the function
				return cty.NilType, errors.New(p.tooMuch())
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

func known(args []cty.Value) bool {
	for _, a := range args {
		if !a.IsWhollyKnown() || a.IsNull() {
			return false
		}
	}
	return true
}

// far is more than any parser has left. Sums and products stop there.
const far = 1 << 40

func sum(a, b int) int { return min(a+b, far) }

func product(a, b int) int {
	if a > 0 && b > far/a {
		return far
	}
	return a * b
}

// size is how many steps a value is, far when it is more than are left.
func (p *budget) size(v cty.Value) (steps int) {
	if !v.IsKnown() || v.IsNull() || v.IsMarked() || v.Type().IsCapsuleType() {
		return 1
	}
	before := p.left
	defer func() {
		steps, p.left = before-p.left+1, before
		if thrown := recover(); thrown != nil {
			if _, ours := thrown.(exhausted); !ours {
				panic(thrown)
			}
			steps = far
		}
	}()
	p.weigh(v, hcl.Range{})
	return 0
}

// bytes is how long a text is; other values are short when they become one.
func bytes(v cty.Value) int {
	if v.Type() == cty.String {
		return len(v.AsString())
	}
	return maxBits / 3
}

// costs are steps beside those for the arguments, of functions whose result or work is a product.
var costs = map[string]func(*budget, []cty.Value) (int, error){
	"join": func(p *budget, args []cty.Value) (int, error) {
		n := 0
		for _, list := range args[1:] {
			n = sum(n, list.LengthInt())
		}
		return product(bytes(args[0]), n) / stepBytes, nil
	},
	"replace": func(p *budget, args []cty.Value) (int, error) {
		if text := args[1].AsString(); len(text) > 1 && text[0] == '/' && text[len(text)-1] == '/' {
			return expression(text[1:len(text)-1], args[0], bytes(args[2]))
		}
		return product(bytes(args[0])+1, bytes(args[2])+1) / stepBytes, nil
	},
	"regex": func(p *budget, args []cty.Value) (int, error) {
		return expression(args[0].AsString(), args[1], 0)
	},
	"regexall": func(p *budget, args []cty.Value) (int, error) {
		return expression(args[0].AsString(), args[1], 0)
	},
	"regex_replace": func(p *budget, args []cty.Value) (int, error) {
		return expression(args[1].AsString(), args[0], bytes(args[2]))
	},
	"format":     formatting,
	"formatlist": formatting,
	"indent": func(p *budget, args []cty.Value) (int, error) {
		n, _ := args[0].AsBigFloat().Int64()
		if n > 1000 {
			return 0, errors.New("indents by at most 1000 spaces")
		}
		return product(bytes(args[1]), max(int(n), 0)+1) / stepBytes, nil
	},
	"parseint": func(p *budget, args []cty.Value) (int, error) {
		if bytes(args[0]) > 1000 && args[0].Type() == cty.String {
			return 0, errors.New("reads at most 1000 digits")
		}
		return 0, nil
	},
	"setproduct": func(p *budget, args []cty.Value) (int, error) {
		n := len(args)
		for _, a := range args {
			n = product(n, a.LengthInt())
		}
		return n, nil
	},
	"distinct": func(p *budget, args []cty.Value) (int, error) { // compares all with all
		return product(args[0].LengthInt(), p.size(args[0])), nil
	},
	"zipmap":    func(p *budget, args []cty.Value) (int, error) { return args[0].LengthInt(), nil },
	"chunklist": func(p *budget, args []cty.Value) (int, error) { return args[0].LengthInt(), nil },
}

// expression is what matching costs; the pattern is compiled within the bounds of kit/pattern first.
func expression(text string, in cty.Value, with int) (int, error) {
	if _, err := pattern.Compile(text); err != nil {
		return 0, err
	}
	return product(bytes(in)+1, len(text)+with+1) / stepBytes, nil
}

// width fits widths, precisions and argument numbers of a format.
var width = regexp.MustCompile(`\d+`)

func formatting(p *budget, args []cty.Value) (int, error) {
	text := args[0].AsString()
	for _, digits := range width.FindAllString(text, -1) {
		if n, err := strconv.Atoi(digits); len(digits) > 4 || err != nil || n > 1000 {
			return 0, fmt.Errorf("the format has the number %.20s: at most 1000", digits)
		}
	}
	steps, longest := 0, 1
	for _, a := range args[1:] {
		steps = sum(steps, p.size(a))
		if a.CanIterateElements() {
			longest = max(longest, a.LengthInt())
		}
	}
	return product(product(len(text)/2+1, steps+16), longest), nil
}

// text are functions on text and lists that the library has not, or not as job files know them.
func text() map[string]function.Function {
	list := map[string]function.Function{
		"length": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowDynamicType: true}},
			Type:   function.StaticReturnType(cty.Number),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				switch v := args[0]; {
				case v.Type() == cty.String:
					return stdlib.Strlen(v)
				case v.CanIterateElements():
					return cty.NumberIntVal(int64(v.LengthInt())), nil
				}
				return cty.NilVal, errors.New("wants text, a list or a map")
			}}),
		"index": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType},
				{Name: "value", Type: cty.DynamicPseudoType}},
			Type: function.StaticReturnType(cty.Number),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				if !args[0].CanIterateElements() {
					return cty.NilVal, errors.New("wants a list")
				}
				at := int64(0)
				for i := args[0].ElementIterator(); i.Next(); at++ {
					if _, e := i.Element(); e.RawEquals(args[1]) {
						return cty.NumberIntVal(at), nil
					}
				}
				return cty.NilVal, errors.New("the list does not have the value")
			}}),
		"sum": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Number)}},
			Type:   function.StaticReturnType(cty.Number),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				total := new(big.Float)
				for i := args[0].ElementIterator(); i.Next(); {
					if _, e := i.Element(); !e.IsNull() {
						total.Add(total, e.AsBigFloat())
					}
				}
				return cty.NumberVal(total), nil
			}}),
		"alltrue": ofBools(false, false), "anytrue": ofBools(true, true),
	}
	maps.Copy(list, plainText())
	return list
}

// ofBools is answer when a list has the value end, and the opposite when it does not.
func ofBools(end, answer bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			for i := args[0].ElementIterator(); i.Next(); {
				if _, e := i.Element(); !e.IsNull() && e.True() == end {
					return cty.BoolVal(answer), nil
				}
			}
			return cty.BoolVal(!answer), nil
		}})
}
