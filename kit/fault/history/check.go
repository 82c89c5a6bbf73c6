package history

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict is what a check found.
type Verdict struct {
	// Result is porcupine.Ok, Illegal, or Unknown when time ran out.
	Result porcupine.CheckResult
	// Judged, Open and Failed count operations: those judged, of these with unknown outcome, and those left out.
	Judged, Open, Failed int

	model porcupine.Model
	info  porcupine.LinearizationInfo
}

// Check judges a history by a model within timeout (zero: as long as it takes).
func Check(model porcupine.Model, ops []Operation, timeout time.Duration) Verdict {
	v := Verdict{model: model}
	var list []porcupine.Operation
	for _, op := range ops {
		if op.Outcome == Failed {
			v.Failed++
			continue
		}
		end := op.End
		if op.Outcome == Unknown {
			v.Open++
			if onlyReads(op) {
				continue // an unanswered read says nothing
			}
			end = math.MaxInt64
		}
		v.Judged++
		list = append(list, porcupine.Operation{ClientId: op.Client, Input: op, Output: op.Outcome, Call: op.Start,
			Return: end})
	}
	v.Result, v.info = porcupine.CheckOperationsVerbose(model, list, timeout)
	return v
}

func onlyReads(op Operation) bool {
	for _, step := range op.Steps {
		if step.Kind != Get && step.Kind != List {
			return false
		}
	}
	return true
}

// Err is nil when the history is explained, and says what is wrong otherwise.
func (v Verdict) Err() error {
	switch v.Result {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return fmt.Errorf("history: no order of the %d operations (%d of unknown outcome) explains the answers",
			v.Judged, v.Open)
	}
	return fmt.Errorf("history: no verdict in time on %d operations (%d of unknown outcome)", v.Judged, v.Open)
}

// Picture writes an HTML page that shows how far the history can be explained.
func (v Verdict) Picture(path string) error {
	return porcupine.VisualizePath(v.model, v.info, path)
}

// partitionKeys groups operations by key; keys that share a transaction stay together.
func partitionKeys(ops []porcupine.Operation) [][]porcupine.Operation {
	parent := map[string]string{}
	var root func(key string) string
	root = func(key string) string {
		up, known := parent[key]
		if !known || up == key {
			parent[key] = key
			return key
		}
		top := root(up)
		parent[key] = top
		return top
	}
	for _, op := range ops {
		steps := op.Input.(Operation).Steps
		for _, step := range steps {
			parent[root(step.Key)] = root(steps[0].Key)
		}
	}
	var groups [][]porcupine.Operation
	place := map[string]int{}
	for _, op := range ops {
		steps := op.Input.(Operation).Steps
		if len(steps) == 0 {
			continue
		}
		key := root(steps[0].Key)
		at, known := place[key]
		if !known {
			at = len(groups)
			place[key] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], op)
	}
	return groups
}
