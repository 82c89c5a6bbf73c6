// Package tagproto reads and writes protocol buffers of plain Go structs whose
// fields carry their numbers as tags: `pb:"3"`. It is for peers' messages whose
// types are ours: no generated code, no registry, no descriptors.
//
// Kinds of fields: string, []byte, bool, int32, int64, uint32, uint64 (all
// varints), float32, float64, structs and pointers to structs, slices of these,
// and map[string]string. An embedded struct with a tag is a message like any other.
// A field of type Extra keeps what the sender knew and the struct does not, byte for
// byte, and writes it back at the end.
//
// Output is deterministic: fields in the order of their numbers, maps in the order of
// their keys, zero values left out (proto3). A message's depth and the memory
// that its reading takes are bounded (Depth, Expansion), so hostile input costs
// what its size allows. Source: the protocol buffers encoding guide.
//
// Plans of types are made at first use and shared; all functions may be called from any goroutine.
package tagproto

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// Depth is how deep messages may be nested.
const Depth = 16

// Expansion bounds what a message may take in memory: this many times its size, and expansionFree beside.
const (
	Expansion     = 32
	expansionFree = 16 << 10
)

// Extra holds fields that the struct has no place for.
type Extra []byte

// Errors of Unmarshal, wrapped with the place.
var (
	ErrDamaged = errors.New("damaged message")
	ErrDeep    = errors.New("messages are nested too deep")
	ErrGreedy  = errors.New("the message would take too much memory for its size")
)

type kind uint8

const (
	kindString kind = iota
	kindBytes
	kindBool
	kindInt
	kindUint
	kindFloat32
	kindFloat64
	kindStruct
	kindPointer
	kindMap
)

type field struct {
	number   protowire.Number
	index    int
	name     string
	kind     kind
	repeated bool
	packed   bool  // written packed: repeated numbers and bools are, in proto3
	message  *plan // of a struct or a pointer to one
	elem     reflect.Type
}

type plan struct {
	typ      reflect.Type
	fields   []field // by number
	byNumber []int16 // index into fields for small numbers, -1 elsewhere
	extra    int     // index of the Extra field, -1 without
}

var (
	plansMu sync.Mutex
	plans   sync.Map // reflect.Type -> *plan
	extraT  = reflect.TypeFor[Extra]()
)

// planOf returns the plan of a struct type. A wrong tag is a mistake in this program: it panics.
func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	plansMu.Lock()
	defer plansMu.Unlock()
	made := map[reflect.Type]*plan{}
	p := makePlan(t, made)
	for t, p := range made { // all at once: a plan that is found is whole
		plans.LoadOrStore(t, p)
	}
	return p
}

func makePlan(t reflect.Type, made map[reflect.Type]*plan) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	if p := made[t]; p != nil {
		return p
	}
	p := &plan{typ: t, extra: -1}
	made[t] = p
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type == extraT {
			p.extra = i
			continue
		}
		tag := f.Tag.Get("pb")
		if tag == "" {
			continue
		}
		n, err := strconv.Atoi(tag)
		if err != nil || n < 1 || n > 1000 {
			panic(fmt.Sprintf("tagproto: %s.%s: tag %q", t, f.Name, tag))
		}
		p.fields = append(p.fields, makeField(t, f, i, protowire.Number(n), made))
	}
	slices.SortFunc(p.fields, func(a, b field) int { return int(a.number) - int(b.number) })
	for i, f := range p.fields {
		for len(p.byNumber) <= int(f.number) {
			p.byNumber = append(p.byNumber, -1)
		}
		if p.byNumber[f.number] >= 0 {
			panic(fmt.Sprintf("tagproto: %s: number %d twice", t, f.number))
		}
		p.byNumber[f.number] = int16(i)
	}
	return p
}

func makeField(t reflect.Type, f reflect.StructField, index int, n protowire.Number,
	made map[reflect.Type]*plan) field {
	out := field{number: n, index: index, name: f.Name, elem: f.Type}
	if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8 {
		out.repeated, out.elem = true, f.Type.Elem()
	}
	switch e := out.elem; e.Kind() {
	case reflect.String:
		out.kind = kindString
	case reflect.Slice:
		out.kind = kindBytes
	case reflect.Bool:
		out.kind = kindBool
	case reflect.Int32, reflect.Int64:
		out.kind = kindInt
	case reflect.Uint32, reflect.Uint64:
		out.kind = kindUint
	case reflect.Float32:
		out.kind = kindFloat32
	case reflect.Float64:
		out.kind = kindFloat64
	case reflect.Struct:
		out.kind, out.message = kindStruct, makePlan(e, made)
	case reflect.Pointer:
		out.kind, out.message = kindPointer, makePlan(e.Elem(), made)
	case reflect.Map:
		if e != reflect.TypeFor[map[string]string]() || out.repeated {
			panic(fmt.Sprintf("tagproto: %s.%s: maps are map[string]string", t, f.Name))
		}
		out.kind = kindMap
	default:
		panic(fmt.Sprintf("tagproto: %s.%s: type %s", t, f.Name, f.Type))
	}
	out.packed = out.repeated && out.kind >= kindBool && out.kind <= kindFloat64
	return out
}

func (p *plan) find(n protowire.Number) *field {
	if int(n) < len(p.byNumber) {
		if i := p.byNumber[n]; i >= 0 {
			return &p.fields[i]
		}
	}
	return nil
}
