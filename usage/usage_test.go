package usage

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func hosts(t *testing.T) *Product {
	p := &Product{Name: "hosts", Kind: Unique, Identity: []string{"host"}, Tags: []string{"env", "team"}}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestObserveNamesTheField is section 3's "a rejected event names the field", and its limits.
func TestObserveNamesTheField(t *testing.T) {
	p, key := hosts(t), NewKey([16]byte{1})
	bytesOf := &Product{Name: "bytes", Kind: Sum, Value: "bytes"}
	many := make([]Field, MaxTags+1)
	for name, test := range map[string]struct {
		p     *Product
		e     Event
		field string
	}{
		"good":             {p, Event{Identity: []Field{{"host", "a"}}, Tags: []Field{{"team", "x"}}}, ""},
		"empty counts":     {p, Event{Identity: []Field{{"host", ""}}}, ""},
		"ten minutes":      {p, Event{Identity: []Field{{"host", ""}}, Time: noon.Add(MaxAhead).UnixNano()}, ""},
		"no identity":      {p, Event{Identity: []Field{{"name", "a"}}}, "identity.host"},
		"no value":         {bytesOf, Event{}, "bytes"},
		"too far ahead":    {p, Event{Time: noon.Add(MaxAhead + 1).UnixNano()}, "time"},
		"before 1970":      {p, Event{Time: -1}, "time"},
		"long identity":    {p, Event{Identity: []Field{{"host", strings.Repeat("x", MaxIdentityBytes)}}}, "identity"},
		"many tags":        {p, Event{Tags: many}, "tags"},
		"broken text":      {p, Event{Tenant: "\xff"}, "tenant"},
		"broken tag":       {p, Event{Tags: []Field{{"team", "\xff"}}}, "tags.team"},
		"long id":          {p, Event{ID: strings.Repeat("x", MaxIDBytes+1)}, "id"},
		"long name of tag": {p, Event{Tags: []Field{{strings.Repeat("x", MaxNameBytes+1), ""}}}, "tags"},
	} {
		_, _, err := test.p.Observe(key, &test.e, noon, nil)
		var wrong *FieldError
		if errors.As(err, &wrong); (err == nil) != (test.field == "") || wrong != nil && wrong.Field != test.field {
			t.Errorf("%s: %v, want %q", name, err, test.field)
		}
	}
	e := Event{ID: "1", Source: "s", Identity: []Field{{"x", "y"}, {"host", "a"}}, Tags: []Field{{"team", "x"}}}
	o, _, err := p.Observe(key, &e, noon, nil)
	other := e
	other.Product, other.Tenant = "elsewhere", DefaultTenant
	same, _, err2 := p.Observe(key, &other, noon, nil)
	if err != nil || err2 != nil || o.ID != same.ID || o.Identity != same.Identity || o.Tags[0] != "" ||
		o.Tags[1] != "x" || o.Time != noon.UnixNano() {
		t.Errorf("%+v, %v, %v", o, err, err2)
	}
}

// TestObserveAllocatesTheTagsAlone keeps the promise of the package comment.
func TestObserveAllocatesTheTagsAlone(t *testing.T) {
	p, key := hosts(t), NewKey([16]byte{1})
	e := Event{ID: "1", Source: "s", Tenant: "t", Identity: []Field{{"host", "a"}}, Tags: []Field{{"team", "x"}}}
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		var err error
		if _, buf, err = p.Observe(key, &e, noon, buf); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// TestProductNamesWhatIsWrong is section 2's definition.
func TestProductNamesWhatIsWrong(t *testing.T) {
	p := Product{Name: "a b", Identity: []string{"x", "x", ""}, Tags: []string{"t", "t"}, TopK: -1, ExactBelow: -1,
		Precision: 11, Windows: []string{"7m"}, Late: time.Second, Value: strings.Repeat("x", 300),
		Unit: strings.Repeat("x", 300)}
	err := p.Complete()
	for _, field := range []string{"name", "kind", "identity", "tags", "topk", "exact_below", "precision", "windows",
		"late", "value", "unit"} {
		if err == nil || !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	err = (&Product{Name: "a", Kind: Unique}).Complete()
	if err == nil || !strings.Contains(err.Error(), "identity: is missing") {
		t.Errorf("a unique without an identity: %v", err)
	}
	good := hosts(t)
	if good.TopK != 100 || good.ExactBelow != 4096 || good.Precision != 14 || good.Late != 24*time.Hour ||
		strings.Join(good.Windows, " ") != "5m 1h 24h month" {
		t.Errorf("%+v", good)
	}
	for _, name := range []string{"unique", "sum", "max", "last", "min"} {
		if k, ok := ParseKind(name); !ok || k.String() != name {
			t.Errorf("kind %s is read as %s", name, k)
		}
	}
	if _, ok := ParseKind(""); ok {
		t.Error("no kind is a kind")
	}
}

// TestGenerations is section 2's "a change of kind or identity starts a new generation, and both are told until the
// window has passed", and the trap "re-registration of a product under way".
func TestGenerations(t *testing.T) {
	p := *hosts(t)
	s, first := Products{}.Put(p, noon)
	p.TopK = 5
	s, same := s.Put(p, noon.Add(time.Hour))
	if first.Generation != 1 || same.Generation != 1 || len(s.Former("hosts", noon)) != 0 {
		t.Errorf("other top k: generation %d", same.Generation)
	}
	before := s
	p.Identity = []string{"host", "env"}
	s, next := s.Put(p, noon.Add(time.Hour))
	if former := s.Former("hosts", noon); next.Generation != 2 || len(former) != 1 || former[0].Generation != 1 {
		t.Errorf("generation %d, %d former ones", next.Generation, len(former))
	}
	if got, _ := before.Get("hosts"); got.Generation != 1 {
		t.Error("a reader's definitions change")
	}
	if len(s.Former("hosts", noon.Add(time.Hour))) != 0 {
		t.Error("a former generation is told for ever")
	}
	s, ok := s.Delete("hosts", noon.Add(2*time.Hour))
	if _, found := s.Get("hosts"); !ok || found || len(s.All()) != 0 {
		t.Error("it is not deleted")
	}
	if _, ok := s.Delete("hosts", noon); ok {
		t.Error("it is deleted twice")
	}
	s = s.Expire(noon.Add(3 * time.Hour))
	if s, again := s.Put(p, noon); again.Generation != 3 || len(s.All()) != 1 {
		t.Errorf("what comes back counts on, as generation %d", again.Generation)
	}
}

// TestCorrections is section 4's and 10's corrections.
func TestCorrections(t *testing.T) {
	for _, c := range []struct {
		Correction
		field string
	}{
		{Correction{}, "kind"}, {Correction{Kind: Void}, "product"}, {Correction{Kind: Void, Product: "p"}, "reason"},
		{Correction{Kind: Void, Product: "p", Reason: "r"}, "ids"},
		{Correction{Kind: Void, Product: "p", Reason: "r", IDs: []string{"1"}, From: noon, To: noon.Add(1)}, "ids"},
		{Correction{Kind: Void, Product: "p", Reason: "r", From: noon, To: noon}, "to"},
		{Correction{Kind: Recount, Product: "p", Reason: "r", IDs: []string{"1"}}, "ids"},
		{Correction{Kind: Replace, Product: "p", Reason: "r", IDs: []string{"1"}}, "events"},
		{Correction{Kind: Void, Product: "p", Reason: "r", IDs: []string{"1"}, Events: []Event{{}}}, "events"},
		{Correction{Kind: Void, Product: "p", Reason: "r", IDs: []string{"1"}}, ""},
		{Correction{Kind: Recount, Product: "p", Reason: "r", From: noon, To: noon.Add(1)}, ""},
	} {
		if err := c.Check(); (err == nil) != (c.field == "") || err != nil && !strings.Contains(err.Error(), c.field+": ") {
			t.Errorf("%+v: %v, want %q", c.Correction, err, c.field)
		}
	}
	p, key := hosts(t), NewKey([16]byte{1})
	e := Event{ID: "1", Source: "s", Tenant: "t", Identity: []Field{{"host", "a"}}}
	o, _, err := p.Observe(key, &e, noon, nil)
	if err != nil {
		t.Fatal(err)
	}
	var v Voids
	v.Add(key, &Correction{Kind: Recount, Tenant: "t", Product: "hosts", From: noon, To: noon.Add(1)}, 50)
	if v.Voided(&o, "s", 1) {
		t.Error("a recount voids")
	}
	byID := v
	byID.Add(key, &Correction{Kind: Void, Tenant: "t", Source: "s", IDs: []string{"1"}}, 50)
	ranged := v
	ranged.Add(key, &Correction{Kind: Void, Tenant: "t", Product: "hosts", Source: "s", From: noon, To: noon.Add(1)}, 50)
	for name, v := range map[string]Voids{"by id": byID, "by range": ranged} {
		if !v.Voided(&o, "s", 49) || v.Voided(&o, "s", 51) {
			t.Errorf("%s: what came before is voided, what comes behind is not", name)
		}
	}
	if ranged.Voided(&o, "other", 1) {
		t.Error("another source is voided")
	}
}
