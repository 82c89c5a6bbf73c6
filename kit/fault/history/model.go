package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// cell is what a KV model knows of one key. The server picks the index of a
// write and clients learn it from later answers only, so it is known or bounded:
// each write's index is above all that were known before it.
type cell struct {
	exists bool
	value  string
	index  uint64 // 0: not known yet
	floor  uint64 // every index up to here is used up
}

// kvState maps keys to cells. It is never changed once a step returned it.
type kvState map[string]cell

// KV is the model of a map with check-and-set: get, put, cas, delete, deletecas,
// and transactions of these. Keys that no transaction joins are judged apart.
var KV = (&porcupine.NondeterministicModel{
	Partition: partitionKeys,
	Init:      func() []any { return []any{kvState{}} },
	Step: func(state, input, output any) []any {
		return kvStep(state.(kvState), input.(Operation))
	},
	Equal:             func(a, b any) bool { return maps.Equal(a.(kvState), b.(kvState)) },
	DescribeOperation: func(input, _ any) string { return describe(input.(Operation)) },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}).ToModel()

// kvStep returns the states that can follow. A transaction is all or nothing; one
// whose outcome is unknown may also have been refused.
func kvStep(state kvState, op Operation) []any {
	states := []kvState{state}
	for _, step := range op.Steps {
		var next []kvState
		for _, s := range states {
			before := s[step.Key]
			for _, after := range before.apply(step, op.Outcome) {
				if after == before {
					next = append(next, s)
					continue
				}
				changed := maps.Clone(s)
				changed[step.Key] = after
				next = append(next, changed)
			}
		}
		states = next
	}
	var result []any
	for _, s := range states {
		result = append(result, s)
	}
	if op.Outcome == Unknown && len(op.Steps) > 1 {
		result = append(result, state)
	}
	return result
}

func (c cell) written(value string) cell {
	return cell{exists: true, value: value, floor: max(c.floor, c.index)}
}

func (c cell) deleted() cell { return cell{floor: max(c.floor, c.index)} }

func (c cell) apply(step Step, outcome Outcome) []cell {
	switch step.Kind {
	case Put:
		return []cell{c.written(step.Value)}
	case Delete:
		return []cell{c.deleted()}
	case CAS:
		return c.conditional(step, outcome, c.written(step.Value))
	case DeleteCAS:
		if !c.exists { // nothing to delete is a success whatever the index
			if outcome == OK && !step.Done {
				return nil
			}
			return []cell{c}
		}
		return c.conditional(step, outcome, c.deleted())
	case Get:
		return c.read(step, outcome)
	}
	return nil
}

func (c cell) read(step Step, outcome Outcome) []cell {
	if outcome == Unknown {
		return []cell{c}
	}
	if step.Found != c.exists || (c.exists && step.Value != c.value) {
		return nil
	}
	if !c.exists || step.Index == 0 {
		return []cell{c}
	}
	return c.learn(step.Index)
}

// learn returns the cell once its index turns out to be index; none when that cannot be.
func (c cell) learn(index uint64) []cell {
	if c.index == index {
		return []cell{c}
	}
	if c.index != 0 || index <= c.floor {
		return nil
	}
	c.index = index
	return []cell{c}
}

// conditional judges a check-and-set whose success gives after.
func (c cell) conditional(step Step, outcome Outcome, after cell) []cell {
	var may []cell // the cell if the condition held
	switch {
	case step.Index == 0 && !c.exists:
		may = []cell{after}
	case step.Index != 0 && c.exists:
		if learned := c.learn(step.Index); len(learned) == 1 {
			after.floor = max(after.floor, step.Index)
			may = []cell{after}
		}
	}
	// It certainly held when absence was asked for, or the index is known and equal.
	certain := len(may) == 1 && (step.Index == 0 || c.index == step.Index)
	switch {
	case outcome == Unknown:
		return append(may, c)
	case step.Done:
		return may
	case certain:
		return nil
	}
	return []cell{c}
}

// lockState is a lock with fencing. Holder is the fence of who holds it, 0 when free.
type lockState struct {
	holder, last uint64
	loose        bool // an invalidation allows it to be taken over
}

// Lock is the model of locks with fencing: an acquisition is legal when the lock
// is free (or was invalidated) and its fence is above all before it.
var Lock = (&porcupine.NondeterministicModel{
	Partition: partitionKeys,
	Init:      func() []any { return []any{lockState{}} },
	Step: func(state, input, output any) []any {
		op := input.(Operation)
		if len(op.Steps) != 1 {
			return nil
		}
		return lockStep(state.(lockState), op.Steps[0], op.Outcome)
	},
	DescribeOperation: func(input, _ any) string { return describe(input.(Operation)) },
}).ToModel()

func lockStep(s lockState, step Step, outcome Outcome) []any {
	free := s.holder == 0 || s.loose
	switch step.Kind {
	case Invalidate:
		s.loose = s.holder != 0
		return []any{s}
	case Acquire:
		switch {
		case outcome == Unknown:
			// Whether it was taken, and under which fence, nobody was told. The one who asked
			// invalidates before it goes on, so the fence matters to nobody.
			return []any{s}
		case !step.Done:
			return []any{s} // a refusal is always legal: lock-delay
		case !free || step.Index <= s.last:
			return nil
		}
		return []any{lockState{holder: step.Index, last: step.Index}}
	case Release:
		held := s.holder == step.Index && s.holder != 0
		after := lockState{last: s.last}
		switch {
		case outcome == Unknown && held:
			return []any{s, after}
		case outcome == Unknown:
			return []any{s}
		case step.Done && held:
			return []any{after}
		case step.Done || (held && !s.loose):
			return nil
		}
		return []any{s}
	}
	return nil
}

// Set is the model of a set: add, remove, list. States are the sorted members, joined.
var Set = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		op := input.(Operation)
		members := split(state.(string))
		for _, step := range op.Steps {
			at, found := slices.BinarySearch(members, step.Value)
			switch {
			case step.Kind == Add && !found:
				members = slices.Insert(members, at, step.Value)
			case step.Kind == Remove && found:
				members = slices.Delete(members, at, at+1)
			case step.Kind == List && op.Outcome == OK:
				if !slices.Equal(members, slices.Sorted(slices.Values(step.Values))) {
					return false, state
				}
			}
		}
		return true, strings.Join(members, "\x00")
	},
	DescribeOperation: func(input, _ any) string { return describe(input.(Operation)) },
}

func split(state string) []string {
	if state == "" {
		return nil
	}
	return strings.Split(state, "\x00")
}

func describe(op Operation) string {
	var parts []string
	for _, s := range op.Steps {
		text := fmt.Sprintf("%s(%s %s", s.Kind, s.Key, s.Value)
		if s.Index != 0 {
			text += fmt.Sprintf(" @%d", s.Index)
		}
		switch s.Kind {
		case Get:
			text += fmt.Sprintf(") found=%t", s.Found)
		case CAS, DeleteCAS, Acquire, Release:
			text += fmt.Sprintf(") done=%t", s.Done)
		case List:
			text += fmt.Sprintf(") %q", s.Values)
		default:
			text += ")"
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, "; ")
	if op.Outcome == Unknown {
		text += " unknown"
	}
	return text
}
