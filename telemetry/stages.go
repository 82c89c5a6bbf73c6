package telemetry

import "time"

// Stage is a part of a request's way through a plane.
type Stage uint8

// The stages, in the order in which a write passes them.
const (
	StageQueue     Stage = iota // waiting to be taken up
	StageAppend                 // encoding and writing to the log
	StageFsync                  // making it durable here
	StageReplicate              // until a quorum has it
	StageApply                  // through the state machine
	StageNotify                 // waking those who watch
	stageCount
)

var stageNames = [stageCount]string{"queue", "append", "fsync", "replicate", "apply", "notify"}

// String is the stage's name, the value of the label "stage".
func (s Stage) String() string {
	if s < stageCount {
		return stageNames[s]
	}
	return "unknown"
}

// Stages accounts for what each kind of request costs: how long each stage takes,
// and how many storage operations, bytes and fsyncs it causes. It exports
// request.stage{plane,kind,stage}, request.storage_ops, request.storage_bytes and
// request.fsyncs{plane,kind}. A nil *Stages does nothing.
type Stages struct {
	timings [][stageCount]*Timing
	costs   []requestCost
}

type requestCost struct{ ops, bytes, fsyncs *Counter }

// Stages makes the accounts of a plane's request kinds; a kind is afterwards named
// by its position here.
func (r *Registry) Stages(plane string, kinds ...string) *Stages {
	if r == nil {
		return nil
	}
	s := &Stages{timings: make([][stageCount]*Timing, len(kinds)), costs: make([]requestCost, len(kinds))}
	for i, kind := range kinds {
		for stage := range stageCount {
			s.timings[i][stage] = r.Timing("request.stage", "plane", plane, "kind", kind, "stage", stage.String())
		}
		s.costs[i] = requestCost{
			ops:    r.Counter("request.storage_ops", "plane", plane, "kind", kind),
			bytes:  r.Counter("request.storage_bytes", "plane", plane, "kind", kind),
			fsyncs: r.Counter("request.fsyncs", "plane", plane, "kind", kind),
		}
	}
	return s
}

// Observe records how long a stage took for a request of a kind. Kinds and stages
// that do not exist are ignored.
func (s *Stages) Observe(kind int, stage Stage, d time.Duration) {
	if s == nil || uint(kind) >= uint(len(s.timings)) || stage >= stageCount {
		return
	}
	s.timings[kind][stage].Observe(d)
}

// Charge adds what a request of a kind caused.
func (s *Stages) Charge(kind int, ops, bytes, fsyncs uint64) {
	if s == nil || uint(kind) >= uint(len(s.costs)) {
		return
	}
	cost := &s.costs[kind]
	for _, part := range [...]struct {
		c *Counter
		n uint64
	}{{cost.ops, ops}, {cost.bytes, bytes}, {cost.fsyncs, fsyncs}} {
		if part.n > 0 {
			part.c.Add(part.n)
		}
	}
}
