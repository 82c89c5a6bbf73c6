package tagproto

import (
	"fmt"
	"math"
	"reflect"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Unmarshal reads b into *m, a pointer to a struct. Fields that b has are set,
// lists and maps grow, as protobuf merges; what m keeps is a copy of b's bytes.
// On an error m holds what came before the damage.
func Unmarshal(b []byte, m any) error {
	v := reflect.ValueOf(m).Elem()
	r := reader{budget: Expansion*len(b) + expansionFree}
	return r.message(b, planOf(v.Type()), v, 0)
}

// reader bounds one Unmarshal.
type reader struct{ budget int }

func (r *reader) take(n int) error {
	if r.budget -= n; r.budget < 0 {
		return ErrGreedy
	}
	return nil
}

func (r *reader) message(b []byte, p *plan, v reflect.Value, depth int) error {
	if depth > Depth {
		return ErrDeep
	}
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("%s: %w", p.typ.Name(), ErrDamaged)
		}
		f := p.find(n)
		value := protowire.ConsumeFieldValue(n, typ, b[size:])
		if value < 0 {
			return fmt.Errorf("%s, field %d: %w", p.typ.Name(), n, ErrDamaged)
		}
		whole := b[:size+value]
		b = b[size+value:]
		if f == nil || !f.fits(typ) {
			if p.extra >= 0 {
				kept := v.Field(p.extra)
				kept.SetBytes(append(kept.Bytes(), whole...))
			}
			continue
		}
		if err := r.field(f, typ, whole[size:], v.Field(f.index), depth); err != nil {
			return fmt.Errorf("%s.%s: %w", p.typ.Name(), f.name, err)
		}
	}
	return nil
}

// fits reports whether a value of wire type t may be f's.
func (f *field) fits(t protowire.Type) bool {
	if f.kind == kindMap {
		return t == protowire.BytesType
	}
	return t == wireType(f.kind) || f.packed && t == protowire.BytesType
}

func (r *reader) field(f *field, typ protowire.Type, b []byte, v reflect.Value, depth int) error {
	if f.kind == kindMap {
		return r.entry(b, v)
	}
	if !f.repeated {
		return r.value(f, b, v, depth)
	}
	if f.packed && typ == protowire.BytesType {
		b, _ = protowire.ConsumeBytes(b)
		for len(b) > 0 {
			n := protowire.ConsumeFieldValue(f.number, wireType(f.kind), b)
			if n < 0 {
				return ErrDamaged
			}
			if err := r.push(f, b[:n], v, depth); err != nil {
				return err
			}
			b = b[n:]
		}
		return nil
	}
	return r.push(f, b, v, depth)
}

// push reads an element of a list.
func (r *reader) push(f *field, b []byte, list reflect.Value, depth int) error {
	if err := r.take(2 * int(f.elem.Size())); err != nil { // twice: lists grow by doubling
		return err
	}
	n := list.Len()
	if n == list.Cap() {
		list.Grow(1)
	}
	list.SetLen(n + 1)
	elem := list.Index(n)
	elem.SetZero()
	return r.value(f, b, elem, depth)
}

func (r *reader) value(f *field, b []byte, v reflect.Value, depth int) error {
	switch f.kind {
	case kindString:
		s, _ := protowire.ConsumeBytes(b)
		if !utf8.Valid(s) {
			return fmt.Errorf("text that is not UTF-8: %w", ErrDamaged)
		}
		v.SetString(string(s))
	case kindBytes:
		s, _ := protowire.ConsumeBytes(b)
		v.SetBytes(append([]byte(nil), s...))
	case kindStruct:
		s, _ := protowire.ConsumeBytes(b)
		return r.message(s, f.message, v, depth+1)
	case kindPointer:
		s, _ := protowire.ConsumeBytes(b)
		if v.IsNil() {
			if err := r.take(int(f.message.typ.Size())); err != nil {
				return err
			}
			v.Set(reflect.New(f.message.typ))
		}
		return r.message(s, f.message, v.Elem(), depth+1)
	case kindBool:
		x, _ := protowire.ConsumeVarint(b)
		v.SetBool(protowire.DecodeBool(x))
	case kindInt:
		x, _ := protowire.ConsumeVarint(b)
		if f.elem.Kind() == reflect.Int32 {
			v.SetInt(int64(int32(x)))
		} else {
			v.SetInt(int64(x))
		}
	case kindUint:
		x, _ := protowire.ConsumeVarint(b)
		if f.elem.Kind() == reflect.Uint32 {
			x = uint64(uint32(x))
		}
		v.SetUint(x)
	case kindFloat32:
		x, _ := protowire.ConsumeFixed32(b)
		v.SetFloat(float64(math.Float32frombits(x)))
	case kindFloat64:
		x, _ := protowire.ConsumeFixed64(b)
		v.SetFloat(math.Float64frombits(x))
	}
	return nil
}

// entryBytes is about what an entry of a map takes beside its texts.
const entryBytes = 64

func (r *reader) entry(b []byte, v reflect.Value) error {
	if err := r.take(entryBytes); err != nil {
		return err
	}
	b, _ = protowire.ConsumeBytes(b)
	var key, value string
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return ErrDamaged
		}
		length := protowire.ConsumeFieldValue(n, typ, b[size:])
		if length < 0 {
			return ErrDamaged
		}
		if text := b[size : size+length]; typ == protowire.BytesType && (n == 1 || n == 2) {
			s, _ := protowire.ConsumeBytes(text)
			if !utf8.Valid(s) {
				return fmt.Errorf("text that is not UTF-8: %w", ErrDamaged)
			}
			if n == 1 {
				key = string(s)
			} else {
				value = string(s)
			}
		}
		b = b[size+length:]
	}
	if v.IsNil() {
		v.Set(reflect.ValueOf(map[string]string{}))
	}
	v.Interface().(map[string]string)[key] = value
	return nil
}
