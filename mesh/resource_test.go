package mesh

import "testing"

func names(s Set) string {
	out := ""
	for _, r := range s.All() {
		out += r.Name + r.Version + " "
	}
	return out
}

func TestSet(t *testing.T) {
	a1, a2, b, c := &Resource{Name: "a", Version: "1"}, &Resource{Name: "a", Version: "2"}, &Resource{Name: "b"},
		&Resource{Name: "c"}
	s := NewSet(c, a1)
	for _, step := range []struct {
		what string
		got  Set
		want string
	}{
		{"sorted", s, "a1 c "},
		{"replaced", s.With(a2), "a2 c "},
		{"added", s.With(b), "a1 b c "},
		{"the later wins", s.With(a2, b, a1), "a1 b c "},
		{"removed", s.Without("a", "missing"), "c "},
		{"unchanged by all of these", s, "a1 c "},
		{"empty", Set{}, ""},
	} {
		if got := names(step.got); got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
	if s.Get("a") != a1 || s.Get("b") != nil || s.Len() != 2 {
		t.Error("Get or Len is wrong")
	}
}

func TestTypes(t *testing.T) {
	for _, typ := range Every {
		if got, ok := TypeOf(typ.URL()); !ok || got != typ {
			t.Errorf("%v: TypeOf its URL gives %v, %t", typ, got, ok)
		}
		if !AllTypes.Has(typ) || !Types(0).With(typ).Has(typ) {
			t.Errorf("%v: sets of types are wrong", typ)
		}
	}
	if _, ok := TypeOf("type.googleapis.com/other"); ok {
		t.Error("an unknown type was known")
	}
}
