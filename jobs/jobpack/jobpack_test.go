package jobpack

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/pack"
)

var update = flag.Bool("update", false, "write testdata anew")

// fill sets all that v has, each time to something else.
func fill(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(*n % 100)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n % 100))
	case reflect.Float64:
		v.SetFloat(float64(*n) / 3)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 3 {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(k, n)
			fill(e, n)
			v.SetMapIndex(k, e)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	}
}

// all is what commands and snapshots have.
type all struct {
	Job    *jobs.Job
	Node   *jobs.Node
	Alloc  *jobs.Allocation
	Eval   *jobs.Evaluation
	Deploy *jobs.Deployment
	Plan   *jobs.Plan
	Config jobs.Config
	Last   string
}

// TestEverything: each field of each type survives, and equal values have equal bytes.
func TestEverything(t *testing.T) {
	var v all
	n := int64(0)
	fill(reflect.ValueOf(&v).Elem(), &n)
	b := Append(nil, &v)
	got, err := Decode[all](b)
	if err != nil || !reflect.DeepEqual(got, &v) {
		t.Fatalf("read %+v, %v", got, err)
	}
	for range 10 {
		if string(Append(nil, got)) != string(b) {
			t.Fatal("the same value has other bytes")
		}
	}
}

// TestFields keeps the order of fields: what is stored was written in it.
func TestFields(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var text strings.Builder
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Map, reflect.Slice, reflect.Pointer:
			walk(t.Elem())
		case reflect.Struct:
			if seen[t] {
				return
			}
			seen[t] = true
			var names []string
			for i := range t.NumField() {
				names = append(names, t.Field(i).Name+" "+t.Field(i).Type.String())
			}
			fmt.Fprintf(&text, "%s: %s\n", t.Name(), strings.Join(names, ", "))
			for i := range t.NumField() {
				walk(t.Field(i).Type)
			}
		}
	}
	walk(reflect.TypeFor[all]())
	if *update {
		if err := os.WriteFile("testdata/fields.txt", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(want)), "\n") {
		if !strings.Contains(text.String(), line) {
			t.Errorf("a struct that is stored lost its beginning (fields come at the end only; then -update):\n%s", line)
		}
	}
}

// TestOlder: what an older release wrote, without the last fields, reads as zero; what a newer one wrote is skipped.
func TestOlder(t *testing.T) {
	type older struct{ A, B string }
	type newer struct {
		A, B string
		C    []int
	}
	b := Append(nil, &[]older{{"a", "b"}, {"c", "d"}})
	got, err := Decode[[]newer](b)
	if err != nil || !reflect.DeepEqual(*got, []newer{{A: "a", B: "b"}, {A: "c", B: "d"}}) {
		t.Errorf("read %v, %v", got, err)
	}
	b = Append(nil, &[]newer{{"a", "b", []int{1}}, {"c", "d", nil}})
	back, err := Decode[[]older](b)
	if err != nil || !reflect.DeepEqual(*back, []older{{"a", "b"}, {"c", "d"}}) {
		t.Errorf("read %v, %v", back, err)
	}
}

func FuzzRead(f *testing.F) {
	var v all
	n := int64(0)
	fill(reflect.ValueOf(&v).Elem(), &n)
	f.Add(Append(nil, &v))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, v := pack.Read(b), new(all)
		Read(r, v)
		if r.Err() != nil {
			return
		}
		again, err := Decode[all](Append(nil, v))
		if err != nil || string(Append(nil, again)) != string(Append(nil, v)) {
			t.Fatalf("written again it is another: %v", err)
		}
	})
}
