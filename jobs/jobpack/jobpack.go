// Package jobpack writes the types of package jobs, and structs that are made of such, as kit/pack records: in
// commands of the state machine, in snapshots, and between servers and nodes.
//
// A struct is a record of its exported fields in the order in which they are declared, so kit/pack's rule holds for
// the declarations: a struct gains fields at its end only, and never loses or reuses one (the test keeps the list).
// Zero fields at the end of a struct are left out. Maps are written in the order of their keys: equal values have
// equal bytes.
//
// Nil and empty lists and maps are not told apart. Interfaces, channels and functions cannot be written: the first
// use of a type that has one panics. Pointers must not form cycles; what is shared is written once for each place, so
// a record that shares writes a number instead (jobstore does).
//
// Reading never panics on hostile input and allocates no more than a small multiple of it: each element of a list
// takes at least one byte. Safe for concurrent use; how a type is written is worked out once.
package jobpack

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/kit/pack"
)

// Append writes *v.
func Append[T any](b []byte, v *T) []byte {
	return codecOf(reflect.TypeFor[T]()).write(b, reflect.ValueOf(v).Elem())
}

// Read reads into *v, which is best zero. The reader keeps what was damaged.
func Read[T any](r *pack.Reader, v *T) {
	codecOf(reflect.TypeFor[T]()).read(r, reflect.ValueOf(v).Elem(), 0)
}

// Decode reads a value that is all of b.
func Decode[T any](b []byte) (*T, error) {
	r, v := pack.Read(b), new(T)
	Read(r, v)
	return v, r.Err()
}

// maxDepth is how deep values may nest; the types of package jobs nest eight deep.
const maxDepth = 24

// codec is how a type is written and read.
type codec struct {
	write func(b []byte, v reflect.Value) []byte
	read  func(r *pack.Reader, v reflect.Value, depth int)
}

var codecs sync.Map // reflect.Type -> *codec

func codecOf(t reflect.Type) *codec {
	if c, ok := codecs.Load(t); ok {
		return c.(*codec)
	}
	c := make1(t)
	kept, _ := codecs.LoadOrStore(t, c)
	return kept.(*codec)
}

// later is the codec of a type that may contain itself.
func later(t reflect.Type) func() *codec { return sync.OnceValue(func() *codec { return codecOf(t) }) }

func make1(t reflect.Type) *codec {
	switch t.Kind() {
	case reflect.Bool:
		return &codec{func(b []byte, v reflect.Value) []byte { return pack.Bool(b, v.Bool()) },
			func(r *pack.Reader, v reflect.Value, _ int) { v.SetBool(r.Bool()) }}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &codec{func(b []byte, v reflect.Value) []byte { return pack.Int(b, v.Int()) },
			func(r *pack.Reader, v reflect.Value, _ int) { v.SetInt(r.Int()) }}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &codec{func(b []byte, v reflect.Value) []byte { return pack.Uint(b, v.Uint()) },
			func(r *pack.Reader, v reflect.Value, _ int) { v.SetUint(r.Uint()) }}
	case reflect.Float64:
		return &codec{func(b []byte, v reflect.Value) []byte { return pack.Float(b, v.Float()) },
			func(r *pack.Reader, v reflect.Value, _ int) { v.SetFloat(r.Float()) }}
	case reflect.String:
		return &codec{func(b []byte, v reflect.Value) []byte { return pack.String(b, v.String()) },
			func(r *pack.Reader, v reflect.Value, _ int) { v.SetString(r.String()) }}
	case reflect.Array:
		return arrayCodec(t)
	case reflect.Slice:
		return sliceCodec(t)
	case reflect.Map:
		return mapCodec(t)
	case reflect.Pointer:
		return pointerCodec(t)
	case reflect.Struct:
		return structCodec(t)
	}
	panic(fmt.Sprintf("jobpack: %v cannot be written", t))
}

// arrayCodec is for ids: nothing but a length for the zero one.
func arrayCodec(t reflect.Type) *codec {
	if t.Elem().Kind() != reflect.Uint8 {
		panic(fmt.Sprintf("jobpack: %v cannot be written", t))
	}
	return &codec{
		func(b []byte, v reflect.Value) []byte {
			if v.IsZero() {
				return pack.Uint(b, 0)
			}
			b = pack.Uint(b, uint64(v.Len()))
			for i := range v.Len() {
				b = append(b, byte(v.Index(i).Uint()))
			}
			return b
		},
		func(r *pack.Reader, v reflect.Value, _ int) { reflect.Copy(v, reflect.ValueOf(r.Bytes())) },
	}
}

func sliceCodec(t reflect.Type) *codec {
	if t.Elem().Kind() == reflect.Uint8 {
		return &codec{func(b []byte, v reflect.Value) []byte { return pack.Bytes(b, v.Bytes()) },
			func(r *pack.Reader, v reflect.Value, _ int) {
				if p := r.Bytes(); len(p) > 0 {
					v.SetBytes(slices.Clone(p))
				}
			}}
	}
	elem := later(t.Elem())
	return &codec{
		func(b []byte, v reflect.Value) []byte {
			b = pack.Uint(b, uint64(v.Len()))
			for i := range v.Len() {
				b = elem().write(b, v.Index(i))
			}
			return b
		},
		func(r *pack.Reader, v reflect.Value, depth int) {
			n := r.Count()
			if n == 0 || depth > maxDepth {
				return
			}
			// Elements may be a hundred times as large in memory as one byte: grow as they come.
			list := reflect.MakeSlice(t, 0, min(n, 64))
			for i := 0; i < n && r.Err() == nil; i++ {
				one := reflect.New(t.Elem()).Elem()
				elem().read(r, one, depth+1)
				list = reflect.Append(list, one)
			}
			v.Set(list)
		},
	}
}

func mapCodec(t reflect.Type) *codec {
	key, elem := later(t.Key()), later(t.Elem())
	return &codec{
		func(b []byte, v reflect.Value) []byte {
			keys := v.MapKeys()
			slices.SortFunc(keys, func(x, y reflect.Value) int {
				if x.Kind() == reflect.String {
					return strings.Compare(x.String(), y.String())
				}
				switch a, b := x.Uint(), y.Uint(); {
				case a < b:
					return -1
				case a > b:
					return 1
				}
				return 0
			})
			b = pack.Uint(b, uint64(len(keys)))
			for _, k := range keys {
				b = elem().write(key().write(b, k), v.MapIndex(k))
			}
			return b
		},
		func(r *pack.Reader, v reflect.Value, depth int) {
			n := r.Count()
			if n == 0 || depth > maxDepth {
				return
			}
			m := reflect.MakeMap(t)
			for i := 0; i < n && r.Err() == nil; i++ {
				k, one := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
				key().read(r, k, depth+1)
				elem().read(r, one, depth+1)
				m.SetMapIndex(k, one)
			}
			v.Set(m)
		},
	}
}

func pointerCodec(t reflect.Type) *codec {
	elem := later(t.Elem())
	return &codec{
		func(b []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return pack.Bool(b, false)
			}
			return elem().write(pack.Bool(b, true), v.Elem())
		},
		func(r *pack.Reader, v reflect.Value, depth int) {
			if r.Bool() && depth <= maxDepth {
				v.Set(reflect.New(t.Elem()))
				elem().read(r, v.Elem(), depth+1)
			}
		},
	}
}

// structCodec writes the exported fields, up to the last that is not zero.
func structCodec(t reflect.Type) *codec {
	var at []int
	var fields []func() *codec
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			at, fields = append(at, i), append(fields, later(f.Type))
		}
	}
	return &codec{
		func(b []byte, v reflect.Value) []byte {
			n := len(at)
			for n > 0 && v.Field(at[n-1]).IsZero() {
				n--
			}
			b, mark := pack.Begin(b)
			for i := range n {
				b = fields[i]().write(b, v.Field(at[i]))
			}
			return pack.End(b, mark)
		},
		func(r *pack.Reader, v reflect.Value, depth int) {
			if depth > maxDepth {
				return
			}
			in := r.Record()
			for i := 0; i < len(at) && in.More(); i++ {
				fields[i]().read(in, v.Field(at[i]), depth+1)
			}
			r.Merge(in)
		},
	}
}
