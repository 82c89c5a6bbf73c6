package spec

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"corbel.dev/corbel/kit/errkind"
)

// Variable is a variable as a file of its own describes it (spec.nv.hcl). Values are literal texts and numbers: nothing
// is evaluated.
type Variable struct {
	Namespace, Path string
	ModifyIndex     uint64 // that the stored one has; 0 where the file states none
	Items           map[string]string
}

// ParseVariable reads such a file. The error is Invalid.
func ParseVariable(text []byte, filename string) (*Variable, error) {
	if len(text) > DefaultMaxBytes {
		return nil, errkind.Errorf(errkind.Invalid, "%s: has more than %d bytes", filename, DefaultMaxBytes)
	}
	if at, wrong := tooDeep(text, filename); wrong != "" {
		return nil, errkind.Errorf(errkind.Invalid, "%s: %s", at, wrong)
	}
	file, diags := hclsyntax.ParseConfig(text, filename, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, errkind.E(errkind.Invalid, "", diags)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil, errkind.Errorf(errkind.Invalid, "%s: is no HCL", filename)
	}
	out := &Variable{Items: map[string]string{}}
	if err := out.top(body); err != nil {
		return nil, err
	}
	for _, b := range body.Blocks {
		if b.Type != "items" || len(b.Labels) > 0 || len(b.Body.Blocks) > 0 {
			return nil, errkind.Errorf(errkind.Invalid, "%s: no block but items { name = \"value\" } is known", b.TypeRange)
		}
		for _, name := range slices.Sorted(maps.Keys(b.Body.Attributes)) {
			if err := out.item(name, b.Body.Attributes[name].Expr); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// top reads what stands outside of blocks.
func (v *Variable) top(body *hclsyntax.Body) (err error) {
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		a := body.Attributes[name]
		switch name {
		case "path":
			v.Path, err = constant(a.Expr)
		case "namespace":
			v.Namespace, err = constant(a.Expr)
		case "items":
			object, ok := a.Expr.(*hclsyntax.ObjectConsExpr)
			if !ok {
				return errkind.Errorf(errkind.Invalid, "%s: items is no object", a.NameRange)
			}
			for _, pair := range object.Items {
				key := hcl.ExprAsKeyword(pair.KeyExpr)
				if key == "" {
					text, diags := pair.KeyExpr.Value(nil)
					if diags.HasErrors() || text.Type() != cty.String {
						return errkind.Errorf(errkind.Invalid, "%s: a name in items is no text", pair.KeyExpr.Range())
					}
					key = text.AsString()
				}
				if err := v.item(key, pair.ValueExpr); err != nil {
					return err
				}
			}
		case "modify_index":
			var text string
			if text, err = constant(a.Expr); err == nil {
				v.ModifyIndex, err = strconv.ParseUint(text, 10, 64)
			}
		case "create_index", "create_time", "modify_time": // the server's
		default:
			return errkind.Errorf(errkind.Invalid, "%s: %q is unknown: use path, namespace and items", a.NameRange, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *Variable) item(name string, e hclsyntax.Expression) error {
	text, err := constant(e)
	if _, twice := v.Items[name]; twice {
		err = cmp.Or(err, errkind.Errorf(errkind.Invalid, "%s: items has %q twice", e.Range(), name))
	}
	v.Items[name] = text
	return err
}

// constant is a literal as text.
func constant(e hclsyntax.Expression) (string, error) {
	parts := []hclsyntax.Expression{e}
	if t, ok := e.(*hclsyntax.TemplateExpr); ok {
		parts = t.Parts
	}
	for _, part := range parts {
		if _, ok := part.(*hclsyntax.LiteralValueExpr); !ok {
			return "", errkind.Errorf(errkind.Invalid, "%s: the value must be a text or a number as it is", e.Range())
		}
	}
	value, diags := e.Value(nil)
	if diags.HasErrors() {
		return "", errkind.E(errkind.Invalid, "", diags)
	}
	text, err := convert.Convert(value, cty.String)
	if err != nil || text.IsNull() || !text.IsKnown() {
		return "", errkind.Errorf(errkind.Invalid, "%s: the value must be a text or a number", e.Range())
	}
	return text.AsString(), nil
}
