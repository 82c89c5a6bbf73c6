package history

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// seq makes operations that do not overlap, one after the other.
func seq(steps ...Step) []Operation {
	var ops []Operation
	for i, s := range steps {
		ops = append(ops, Operation{Steps: []Step{s}, Start: int64(10 * i), End: int64(10*i + 5), Outcome: OK})
	}
	return ops
}

func unknown(at int, ops []Operation) []Operation {
	ops[at].Outcome = Unknown
	return ops
}

func TestModels(t *testing.T) {
	put := func(v string) Step { return Step{Kind: Put, Key: "k", Value: v} }
	get := func(v string, index uint64) Step {
		return Step{Kind: Get, Key: "k", Value: v, Index: index, Found: v != ""}
	}
	cas := func(v string, index uint64, done bool) Step {
		return Step{Kind: CAS, Key: "k", Value: v, Index: index, Done: done}
	}
	lock := func(kind Kind, fence uint64, done bool) Step {
		return Step{Kind: kind, Key: "l", Index: fence, Done: done}
	}
	deletecas := func(index uint64, done bool) Step { return Step{Kind: DeleteCAS, Key: "k", Index: index, Done: done} }
	list := func(values ...string) Step { return Step{Kind: List, Values: values} }
	add := func(v string) Step { return Step{Kind: Add, Value: v} }
	txn := func(outcome Outcome, steps ...Step) Operation {
		return Operation{Steps: steps, Start: 0, End: 5, Outcome: outcome}
	}
	other := Step{Kind: Get, Key: "other", Value: "b", Found: true}
	both := []Step{{Kind: Put, Key: "k", Value: "a"}, {Kind: Put, Key: "other", Value: "b"}}
	tests := []struct {
		name  string
		model porcupine.Model
		ops   []Operation
		legal bool
	}{
		{"read of a write", KV, seq(put("a"), get("a", 7)), true},
		{"stale read", KV, seq(put("a"), put("b"), get("a", 7)), false},
		{"lost write", KV, seq(put("a"), get("", 0)), false},
		{"read of nothing", KV, seq(get("", 0)), true},
		{"unknown write is seen later", KV, unknown(1, seq(put("a"), put("b"), get("a", 0), get("b", 0))), true},
		{"unknown write is seen and unseen", KV, unknown(1, seq(put("a"), put("b"), get("b", 0), get("a", 0))), false},
		{"cas on the index read", KV, seq(put("a"), get("a", 7), cas("b", 7, true), get("b", 9)), true},
		{"cas twice on one index", KV, seq(put("a"), get("a", 7), cas("b", 7, true), cas("c", 7, true)), false},
		{"cas refused though the index is right", KV, seq(put("a"), get("a", 7), cas("b", 7, false)), false},
		{"cas refused after a write", KV, seq(put("a"), get("a", 7), put("c"), cas("b", 7, false)), true},
		{"cas on a used up index", KV, seq(put("a"), get("a", 7), put("c"), cas("b", 7, true)), false},
		{"create twice", KV, seq(cas("a", 0, true), cas("b", 0, true)), false},
		{"create, delete, create", KV, seq(cas("a", 0, true), Step{Kind: Delete, Key: "k"}, cas("b", 0, true)), true},
		{"index goes back", KV, seq(put("a"), get("a", 7), put("b"), get("b", 6)), false},
		{"deletecas on the index read", KV, seq(put("a"), get("a", 7), deletecas(7, true), get("", 0)), true},
		{"deletecas on a used up index", KV, seq(put("a"), get("a", 7), put("b"), deletecas(7, true)), false},
		{"deletecas of nothing", KV, seq(put("a"), get("a", 7), Step{Kind: Delete, Key: "k"}, deletecas(7, true)), true},
		{"deletecas of nothing is refused", KV, seq(deletecas(7, false)), false},
		{"transaction is whole", KV, append([]Operation{txn(OK, both...)}, shift(10, seq(get("a", 0), other))...), true},
		{"transaction is half", KV, append([]Operation{txn(OK, both...)}, shift(10, seq(get("", 0), other))...), false},
		{"unknown transaction is half", KV, append([]Operation{txn(Unknown, both...)}, shift(10, seq(other, get("", 0)))...),
			false},
		{"unknown transaction never came", KV, append([]Operation{txn(Unknown, both...)}, shift(10, seq(get("", 0)))...),
			true},
		{"lock in turn", Lock, seq(lock(Acquire, 1, true), lock(Release, 1, true), lock(Acquire, 2, true)), true},
		{"two holders", Lock, seq(lock(Acquire, 1, true), lock(Acquire, 2, true)), false},
		{"taken over after invalidation", Lock, seq(lock(Acquire, 1, true), lock(Invalidate, 0, true),
			lock(Acquire, 2, true)), true},
		{"fence goes back", Lock, seq(lock(Acquire, 2, true), lock(Release, 2, true), lock(Acquire, 1, true)), false},
		{"release by a former holder", Lock, seq(lock(Acquire, 1, true), lock(Invalidate, 0, true), lock(Acquire, 2, true),
			lock(Release, 1, true)), false},
		{"set", Set, seq(add("b"), add("a"), list("a", "b"), Step{Kind: Remove, Value: "a"}, list("b")), true},
		{"set lost one", Set, seq(add("b"), add("a"), list("b")), false},
		{"set brought one back", Set, seq(add("a"), Step{Kind: Remove, Value: "a"}, list("a")), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := Check(test.model, test.ops, 10*time.Second)
			if got := v.Err() == nil; got != test.legal {
				t.Errorf("legal = %t, want %t (%v)", got, test.legal, v.Result)
			}
		})
	}
}

func shift(by int64, ops []Operation) []Operation {
	for i := range ops {
		ops[i].Start += by
		ops[i].End += by
	}
	return ops
}

// register is a correct map with check-and-set; with lost set it forgets some writes.
type register struct {
	value string
	index uint64
	lost  bool
}

func (r *register) do(s Step) Step {
	switch s.Kind {
	case Get:
		s.Value, s.Index, s.Found = r.value, r.index, r.value != ""
	case CAS:
		s.Done = s.Index == r.index
	}
	if s.Kind == Put || s.Done {
		r.index++
		if !r.lost || r.index%20 != 0 {
			r.value = s.Value
		}
	}
	return s
}

// caller is one client between two turns: it calls, is served, and hears the answer.
type caller struct {
	pending *Pending
	step    Step
	served  bool
	index   uint64 // of its last read
	calls   int
}

// record runs four callers against the register, one turn at a time in an order drawn
// from a fixed seed: calls overlap, and the history is the same in every run.
func record(r *register) []Operation {
	const each = 100
	rec := NewRecorder()
	rng := rand.New(rand.NewPCG(1, 2))
	callers := make([]caller, 4)
	for left := len(callers) * each; left > 0; {
		client := rng.IntN(len(callers))
		c := &callers[client]
		switch {
		case c.pending == nil && c.calls < each:
			c.step = Step{Kind: []Kind{Get, Put, CAS}[rng.IntN(3)], Key: "k"}
			if c.step.Kind != Get {
				c.step.Value = strconv.Itoa(client) + "-" + strconv.Itoa(c.calls)
			}
			if c.step.Kind == CAS {
				c.step.Index = c.index
			}
			c.pending, c.served = rec.Begin(client, c.step), false
			c.calls++
		case c.pending == nil:
		case !c.served && rng.IntN(20) == 0:
			c.pending.Fail(errors.New("refused"))
			c.pending = nil
			left--
		case !c.served:
			c.step, c.served = r.do(c.step), true
		case rng.IntN(20) == 0:
			c.pending.Unknown(errors.New("timeout"))
			c.pending = nil
			left--
		default:
			if c.step.Kind == Get {
				c.index = c.step.Index
			}
			c.pending.OK(c.step)
			c.pending = nil
			left--
		}
	}
	return rec.History()
}

func TestRecordedRuns(t *testing.T) {
	ops := record(&register{})
	if err := Check(KV, ops, 30*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	bad := Check(KV, record(&register{lost: true}), 30*time.Second)
	if bad.Result != porcupine.Illegal {
		t.Fatalf("a register that forgets writes was judged %v", bad.Result)
	}
	if err := bad.Picture(filepath.Join(t.TempDir(), "bad.html")); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := Write(&buf, ops); err != nil {
		t.Fatal(err)
	}
	again, err := Read(&buf)
	if err != nil || !reflect.DeepEqual(ops, again) {
		t.Fatalf("history changed by writing and reading (%v)", err)
	}
}
