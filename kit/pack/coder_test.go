package pack

import (
	"errors"
	"reflect"
	"testing"
)

type small struct {
	Name  string
	Delta int16
}

type large struct {
	Names []string
	Sizes map[string]uint32
	Inner *small
	Each  []small
	Data  []byte
	On    bool
}

func (s *small) pass(c *Coder) {
	c.String(&s.Name)
	Signed(c, &s.Delta)
}

func (l *large) pass(c *Coder) {
	c.Strings(&l.Names)
	Map(c, &l.Sizes, 2, func(n *uint32) { Unsigned(c, n) })
	Optional(c, &l.Inner, func(s *small) { c.Record(s.pass) })
	List(c, &l.Each, 3, func(s *small) { s.pass(c) })
	c.Copy(&l.Data)
	c.Bool(&l.On)
}

func sample() *large {
	return &large{Names: []string{"a", ""}, Sizes: map[string]uint32{"x": 7, "b": 1 << 30},
		Inner: &small{"in", -3}, Each: []small{{"one", 1}, {"two", -2}}, Data: []byte("d"), On: true}
}

// TestCoder: what is read is what was appended, each cut of it is damage or shorter, and lists have bounds.
func TestCoder(t *testing.T) {
	whole := AppendRecord(nil, sample().pass)
	for _, want := range []*large{sample(), {}} {
		r, got := Read(AppendRecord(nil, want.pass)), &large{Names: []string{"former"}}
		if ReadRecord(r, got.pass); r.Err() != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v\nwant %+v", got, r.Err(), want)
		}
	}
	for n := 1; n < len(whole); n++ {
		r := Read(whole[:n])
		if ReadRecord(r, new(large).pass); !errors.Is(r.Err(), ErrDamaged) {
			t.Errorf("%d of %d bytes are read: %v", n, len(whole), r.Err())
		}
	}
	long := sample()
	long.Each = make([]small, 4)
	r := Read(AppendRecord(nil, long.pass))
	if ReadRecord(r, new(large).pass); !errors.Is(r.Err(), ErrTooMany) {
		t.Errorf("four elements where three are allowed: %v", r.Err())
	}
}

// TestCoderShares: appending changes nothing, so that many may append a value at once (the race detector looks).
func TestCoderShares(t *testing.T) {
	shared, done := sample(), make(chan []byte)
	for range 2 {
		go func() { done <- AppendRecord(nil, shared.pass) }()
	}
	if a, b := <-done, <-done; string(a) != string(b) {
		t.Error("two encodings of a value differ")
	}
}
