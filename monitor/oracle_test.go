package monitor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	sensu "github.com/sensu/sensu-go/api/core/v2"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// fill gives every field of v a value that is drawn, so that no field is like another.
func fill(rng *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("t%d", rng.IntN(1000)))
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(rng.Int64N(1<<31) - 1<<30)
	case reflect.Uint32:
		v.SetUint(uint64(rng.Uint32()))
	case reflect.Float64:
		v.SetFloat(rng.NormFloat64())
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem(), depth+1)
		}
	case reflect.Map: // one entry: the oracle writes maps in any order
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf(map[string]string{fmt.Sprint("k", rng.IntN(100)): "v"}))
			return
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(rng, elem, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), elem)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := make([]byte, 16)
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			v.SetBytes(b)
			return
		}
		if depth > 6 {
			return
		}
		n := 1 + rng.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(rng, v.Index(i), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "XXX_unrecognized" && f.Name != "XXX_sizecache" &&
				f.Name != "XXX_NoUnkeyedLiteral" {
				fill(rng, v.Field(i), depth+1)
			}
		}
	}
}

type protoOf interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// Each object reads what the reference's own types write, byte for byte and name for name, and writes it back.
func TestObjectsAreTheReferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, pair := range []struct {
		theirs protoOf
		ours   any
	}{
		{&sensu.Event{}, &monitor.Event{}}, {&sensu.Entity{}, &monitor.Entity{}}, {&sensu.Check{}, &monitor.Check{}},
		{&sensu.CheckConfig{}, &monitor.CheckConfig{}},
		{&sensu.CheckRequest{}, &monitor.CheckRequest{}}, {&sensu.Asset{}, &monitor.Asset{}},
		{&sensu.Handler{}, &monitor.Handler{}},
		{&sensu.Mutator{}, &monitor.Mutator{}}, {&sensu.EventFilter{}, &monitor.EventFilter{}},
		{&sensu.HookConfig{}, &monitor.HookConfig{}},
		{&sensu.Pipeline{}, &monitor.Pipeline{}}, {&sensu.Silenced{}, &monitor.Silenced{}}, {&sensu.Role{}, &monitor.Role{}},
		{&sensu.ClusterRole{}, &monitor.ClusterRole{}}, {&sensu.RoleBinding{}, &monitor.RoleBinding{}},
		{&sensu.ClusterRoleBinding{}, &monitor.ClusterRoleBinding{}},
		{&sensu.User{}, &monitor.User{}}, {&sensu.APIKey{}, &monitor.APIKey{}}, {&sensu.Namespace{}, &monitor.Namespace{}},
	} {
		name := reflect.TypeOf(pair.ours).Elem().Name()
		for range 30 {
			theirs := reflect.New(reflect.TypeOf(pair.theirs).Elem())
			fill(rng, theirs.Elem(), 0)
			ours := reflect.New(reflect.TypeOf(pair.ours).Elem()).Interface()
			wire, err := theirs.Interface().(protoOf).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if err := tagproto.Unmarshal(wire, ours); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if extra := reflect.ValueOf(ours).Elem().FieldByName("Extra").Bytes(); len(extra) > 0 {
				t.Fatalf("%s: fields that ours does not have: % x", name, extra)
			}
			if got := tagproto.Append(nil, ours); !bytes.Equal(got, wire) {
				t.Fatalf("%s: written back\n% x\nwant\n% x", name, got, wire)
			}
			sameJSON(t, name, ours, theirs.Interface())
		}
	}
}

func sameJSON(t *testing.T, name string, ours, theirs any) {
	t.Helper()
	a, err := json.Marshal(ours)
	if err != nil {
		t.Fatal(name, err)
	}
	b, err := json.Marshal(theirs)
	if err != nil {
		t.Fatal(name, err)
	}
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatalf("%s: not objects: %s", name, a)
	}
	if !reflect.DeepEqual(x, y) {
		t.Fatalf("%s:\n got %s\nwant %s", name, a, b)
	}
	back := reflect.New(reflect.TypeOf(ours).Elem()).Interface()
	if err := json.Unmarshal(b, back); err != nil {
		t.Fatalf("%s: reads not what the reference writes: %v", name, err)
	}
}

// A million results in random order of status and time, with thresholds that are drawn: the step says what the
// reference's merge says.
func TestStepAgainstTheReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const sequences, length = 10_000, 100
	for range sequences {
		th := monitor.Thresholds{Low: uint32(rng.IntN(40)), High: uint32(rng.IntN(60))}
		flips := 1 + rng.IntN(20)
		var state monitor.State
		before := &sensu.Check{}
		status, executed := uint32(rng.IntN(3)), int64(1_700_000_000)
		for range length {
			if rng.IntN(flips) == 0 {
				status = uint32(rng.IntN(3))
			}
			executed += rng.Int64N(60) - 5
			their := &sensu.Check{Status: status, Executed: executed, LowFlapThreshold: th.Low, HighFlapThreshold: th.High}
			their.MergeWith(before)
			var out monitor.Outcome
			state, out = monitor.Step(state, monitor.Result{Status: status, Executed: executed}, th, nil)
			event := &sensu.Event{Check: their}
			if state.Condition.String() != their.State || state.Change != their.TotalStateChange ||
				state.LastOK != their.LastOK || state.History.Len() != len(their.History) ||
				out.Resolution != event.IsResolution() || out.Incident != event.IsIncident() {
				t.Fatalf("%+v\n%+v\nwant %+v", state, out, their)
			}
			if at, newest := state.History.At(0); at != their.History[0].Status || newest != their.History[0].Executed {
				t.Fatal("another history")
			}
			before = their
		}
	}
}

func TestSilencesAgainstTheReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	subset := func() (out []string) {
		for _, s := range []string{"linux", "web", "entity:e1", "db"} {
			if rng.IntN(2) == 0 {
				out = append(out, s)
			}
		}
		return out
	}
	for range 100_000 {
		theirs := &sensu.Silenced{Subscription: pick("", "*", "linux", "web", "entity:e1", "entity:e2"),
			Check: pick("", "*", "cpu", "disk")}
		ours := &monitor.Silenced{Subscription: theirs.Subscription, Check: theirs.Check}
		if ours.Validate() != nil { // also "*" and nothing, of which the reference makes a silence of everything
			if theirs.Validate() == nil && monitor.SilenceName(ours.Subscription, ours.Check) != "*:*" {
				t.Fatalf("%+v: %v", ours, ours.Validate())
			}
			continue
		}
		p := monitor.Subject{Check: pick("cpu", "disk", "net"), CheckSubscriptions: subset(), Entity: pick("e1", "e2"),
			EntitySubscriptions: subset(), Proxy: rng.IntN(2) == 0}
		event := &sensu.Event{Check: &sensu.Check{ObjectMeta: sensu.ObjectMeta{Name: p.Check},
			Subscriptions: p.CheckSubscriptions},
			Entity: &sensu.Entity{ObjectMeta: sensu.ObjectMeta{Name: p.Entity}, Subscriptions: p.EntitySubscriptions}}
		if p.Proxy {
			event.Check.ProxyEntityName = p.Entity
		}
		if got, want := len(monitor.NewSilences([]*monitor.Silenced{ours}).Of(p, 1)) == 1,
			event.IsSilencedBy(theirs); got != want {
			t.Fatalf("%+v of %+v: %v, want %v", ours, p, got, want)
		}
	}
}

// What is wrong with an object is wrong with the reference's, too.
func TestValidationAgainstTheReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	number := func() uint32 { return uint32(rng.IntN(12)) }
	for range 50_000 {
		theirs := &sensu.Check{ObjectMeta: sensu.ObjectMeta{Name: pick("cpu", "", "a b", "a.b:c_d-e")},
			Publish: rng.IntN(2) == 0, Interval: number(),
			Cron: pick("", "", "* * * * *", "@hourly", "bad"), Ttl: int64(number()), LowFlapThreshold: number(),
			HighFlapThreshold: number(),
			ProxyEntityName:   pick("", "p", "p p"), OutputMetricFormat: pick("", "nagios_perfdata", "x"),
			Subscriptions: []string{pick("a", "")},
			RuntimeAssets: []string{pick("a", "a/b:1", "a b")}, EnvVars: []string{pick("A=b", "A")}}
		ours := new(monitor.Check)
		wire, err := theirs.Marshal()
		if err != nil || tagproto.Unmarshal(wire, ours) != nil {
			t.Fatal(err)
		}
		if a, b := ours.Validate(), theirs.Validate(); (a == nil) != (b == nil) {
			t.Fatalf("%s: %v, want %v", theirs.String(), a, b)
		}
	}
}
