package spec

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"corbel.dev/corbel/jobs/jobwire"
)

// attribute reads an argument into v, and reports whether it had a value.
func (p *parser) attribute(a *hclsyntax.Attribute, ctx *hcl.EvalContext, v reflect.Value, path string) bool {
	value, ok := p.value(a.Expr, ctx, path)
	if !ok || value.IsNull() { // null is as if it were not there
		return false
	}
	return p.put(value, v, a.Expr.Range(), path)
}

// put converts a value to the type of v.
func (p *parser) put(value cty.Value, v reflect.Value, at hcl.Range, path string) bool {
	wrong := func(want string) bool {
		p.problem(at, path, "want %s, not %s", want, article(value))
		return false
	}
	switch v.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		if !p.put(value, fresh.Elem(), at, path) {
			return false
		}
		v.Set(fresh)
		return true
	case reflect.Slice:
		return p.list(value, v, at, path) || wrong("a list")
	case reflect.Map:
		return p.mapping(value, v, at, path) || wrong("an object")
	case reflect.Bool:
		b, err := convert.Convert(value, cty.Bool)
		if err != nil || b.IsNull() {
			return wrong("true or false")
		}
		v.SetBool(b.True())
	case reflect.String:
		s, err := convert.Convert(value, cty.String)
		if err != nil || s.IsNull() {
			return wrong("text")
		}
		v.SetString(s.AsString())
	default:
		return p.number(value, v, at, path)
	}
	return true
}

// article names a value's type for an error.
func article(v cty.Value) string {
	if v.IsNull() {
		return "null"
	}
	switch t := v.Type(); {
	case t == cty.String:
		text := v.AsString()
		if len(text) > 40 {
			text = text[:40] + "..."
		}
		return `"` + text + `"`
	case t == cty.Bool, t == cty.Number:
		s, _ := convert.Convert(v, cty.String)
		return s.AsString()
	case t.IsObjectType(), t.IsMapType():
		return "an object"
	}
	return "a list"
}

// number reads whole numbers and durations.
func (p *parser) number(value cty.Value, v reflect.Value, at hcl.Range, path string) bool {
	if v.Type() == reflect.TypeFor[jobwire.Duration]() && value.Type() == cty.String {
		d, err := time.ParseDuration(value.AsString())
		if err != nil {
			p.problem(at, path, `want a duration such as "30s" or "1h30m", not %s`, article(value))
			return false
		}
		v.SetInt(int64(d))
		return true
	}
	n, err := convert.Convert(value, cty.Number)
	if err != nil || n.IsNull() {
		p.problem(at, path, "want a whole number, not %s", article(value))
		return false
	}
	p.weigh(n, at)
	i, ok := whole(n.AsBigFloat())
	switch {
	case !ok:
	case v.CanInt() && !v.OverflowInt(i):
		v.SetInt(i)
		return true
	case v.CanUint() && i >= 0 && !v.OverflowUint(uint64(i)):
		v.SetUint(uint64(i))
		return true
	}
	p.problem(at, path, "want a whole number%s, not %s", limits(v), article(value))
	return false
}

// limits tells the range of small numbers.
func limits(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Int8:
		return " from -128 to 127"
	case reflect.Uint8:
		return " from 0 to 255"
	case reflect.Uint16:
		return " from 0 to 65535"
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return " of at least 0"
	}
	return ""
}

func (p *parser) list(value cty.Value, v reflect.Value, at hcl.Range, path string) bool {
	t := value.Type()
	if !t.IsTupleType() && !t.IsListType() && !t.IsSetType() {
		return false
	}
	list := reflect.MakeSlice(v.Type(), 0, value.LengthInt())
	for i := value.ElementIterator(); i.Next(); {
		_, e := i.Element()
		element := reflect.New(v.Type().Elem()).Elem()
		if p.put(e, element, at, path) {
			list = reflect.Append(list, element)
		}
	}
	v.Set(list)
	return true
}

func (p *parser) mapping(value cty.Value, v reflect.Value, at hcl.Range, path string) bool {
	if t := value.Type(); !t.IsObjectType() && !t.IsMapType() {
		return false
	}
	if free, ok := v.Addr().Interface().(*map[string]any); ok {
		*free = p.native(value, at).(map[string]any)
		return true
	}
	m := reflect.MakeMap(v.Type())
	for i := value.ElementIterator(); i.Next(); {
		k, e := i.Element()
		element := reflect.New(v.Type().Elem()).Elem()
		if !e.IsNull() && p.put(e, element, at, path+"."+k.AsString()) {
			m.SetMapIndex(reflect.ValueOf(k.AsString()), element)
		}
	}
	v.Set(m)
	return true
}

// native is a value as JSON has it; numbers keep their digits.
func (p *parser) native(value cty.Value, at hcl.Range) any {
	p.spend(1, at)
	t := value.Type()
	switch {
	case value.IsNull() || !value.IsKnown():
		return nil
	case t == cty.String:
		return value.AsString()
	case t == cty.Bool:
		return value.True()
	case t == cty.Number:
		return json.Number(value.AsBigFloat().Text('f', -1))
	case t.IsObjectType() || t.IsMapType():
		m := map[string]any{}
		for i := value.ElementIterator(); i.Next(); {
			k, e := i.Element()
			m[k.AsString()] = p.native(e, at)
		}
		return m
	case !value.CanIterateElements():
		return nil
	}
	list := []any{}
	for i := value.ElementIterator(); i.Next(); {
		_, e := i.Element()
		list = append(list, p.native(e, at))
	}
	return list
}
