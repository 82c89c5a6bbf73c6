package monitor_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	sensu "github.com/sensu/sensu-go/api/core/v2"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// thin sets about half of all fields to nothing.
func thin(rng *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			thin(rng, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			thin(rng, v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[sensu.ResourceReference]() { // always whole: it is invalid otherwise
			return
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if !f.Anonymous && rng.IntN(2) == 0 {
				v.Field(i).SetZero()
				continue
			}
			thin(rng, v.Field(i))
		}
	}
}

// What is left out, null or empty in the JSON of the reference is so in ours (SA-26).
func TestSparseJSONIsTheReferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, pair := range []struct {
		theirs protoOf
		ours   any
	}{
		{&sensu.Event{}, &monitor.Event{}}, {&sensu.Entity{}, &monitor.Entity{}},
		{&sensu.CheckConfig{}, &monitor.CheckConfig{}},
		{&sensu.Asset{}, &monitor.Asset{}}, {&sensu.Handler{}, &monitor.Handler{}},
		{&sensu.Mutator{}, &monitor.Mutator{}}, {&sensu.EventFilter{}, &monitor.EventFilter{}},
		{&sensu.HookConfig{}, &monitor.HookConfig{}},
		{&sensu.Pipeline{}, &monitor.Pipeline{}}, {&sensu.Silenced{}, &monitor.Silenced{}}, {&sensu.Role{}, &monitor.Role{}},
		{&sensu.ClusterRoleBinding{}, &monitor.ClusterRoleBinding{}}, {&sensu.User{}, &monitor.User{}},
		{&sensu.APIKey{}, &monitor.APIKey{}}, {&sensu.Namespace{}, &monitor.Namespace{}},
	} {
		for range 100 {
			theirs := reflect.New(reflect.TypeOf(pair.theirs).Elem())
			fill(rng, theirs.Elem(), 0)
			thin(rng, theirs.Elem())
			wire, err := theirs.Interface().(protoOf).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			back, ours := reflect.New(theirs.Type().Elem()).Interface().(protoOf),
				reflect.New(reflect.TypeOf(pair.ours).Elem()).Interface()
			if err := back.Unmarshal(wire); err != nil {
				t.Fatal(err)
			}
			if err := tagproto.Unmarshal(wire, ours); err != nil {
				t.Fatal(err)
			}
			sameJSON(t, theirs.Type().Elem().Name(), ours, back)
		}
	}
}
