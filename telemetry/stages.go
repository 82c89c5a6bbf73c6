package telemetry

import (
	"sync/atomic"
	"time"
)

// Stage is a part of a request's way through a plane.
type Stage uint8

// The stages, in the order in which a write passes them.
const (
	StageQueue     Stage = iota // waiting to be taken up
	StageToken                  // finding the token, judging by its policies
	StageEncode                 // reading the request, making the answer
	StageAppend                 // writing to the log
	StageFsync                  // making it durable here
	StageReplicate              // until a quorum has it
	StageApply                  // through the state machine
	StageNotify                 // waking those who watch
	StageStorage                // the storage behind the plane, wherever that is
	StageHandler                // what the operator asked to be done with it
	StageWrite                  // handing the answer to the caller's socket
	StageBuild                  // making what proxies need to know; encoding it is StageEncode
	StageSend                   // from the commit until it was written to a proxy
	StageAck                    // until the proxy has taken it
	StageReceive                // from a frame until its event is understood, and its owner here takes it up
	StageStep                   // from what was known and what came to what is known
	StageForward                // to the server that owns it, until that has taken it
	stageCount
)

var stageNames = [stageCount]string{"queue", "token", "encode", "append", "fsync", "replicate", "apply", "notify",
	"storage", "handler", "write", "build", "send", "ack", "receive", "step", "forward"}

// String is the stage's name, the value of the label "stage".
func (s Stage) String() string {
	if s < stageCount {
		return stageNames[s]
	}
	return "unknown"
}

// Stages accounts for what each kind of request costs: how long each stage takes,
// and how many storage operations, bytes and fsyncs it causes. It exports
// request.total{plane,kind}, request.stage{plane,kind,stage}, request.shed{plane}, request.storage_ops,
// request.storage_bytes and request.fsyncs{plane,kind}. A nil *Stages does nothing.
type Stages struct {
	plane   string
	kinds   []string
	totals  []*Timing
	timings [][stageCount]atomic.Pointer[Timing] // made at the first observation: a kind passes few of the stages
	costs   []requestCost
	shed    *Counter
	slow    *slowRing
	r       *Registry
}

// timing is that of a stage of a kind.
func (s *Stages) timing(kind int, stage Stage) *Timing {
	at := &s.timings[kind][stage]
	t := at.Load()
	if t == nil {
		t = s.r.Timing("request.stage", "plane", s.plane, "kind", s.kinds[kind], "stage", stage.String())
		at.Store(t)
	}
	return t
}

type requestCost struct{ ops, bytes, fsyncs *Counter }

// Stages makes the accounts of a plane's request kinds; a kind is afterwards named
// by its position here. It is nil where the doctor is off.
func (r *Registry) Stages(plane string, kinds ...string) *Stages {
	if r == nil || r.Settings().DisableDoctor {
		return nil
	}
	s := &Stages{plane: plane, kinds: kinds, totals: make([]*Timing, len(kinds)),
		timings: make([][stageCount]atomic.Pointer[Timing], len(kinds)), costs: make([]requestCost, len(kinds)),
		shed: r.Counter("request.shed", "plane", plane), slow: &slowRing{}, r: r}
	s.slow.bar.Store(int64(slowLeast))
	r.mu.Lock()
	r.slow = append(r.slow, s.slow)
	r.mu.Unlock()
	for i, kind := range kinds {
		s.totals[i] = r.Timing("request.total", "plane", plane, "kind", kind)
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
func (s *Stages) Observe(kind int, stage Stage, d time.Duration) { s.ObserveAll(kind, stage, d, 1) }

// ObserveAll records n requests of a kind that passed a stage together, each of which took d: it costs as much as one.
func (s *Stages) ObserveAll(kind int, stage Stage, d time.Duration, n int) {
	if s == nil || n <= 0 || uint(kind) >= uint(len(s.timings)) || stage >= stageCount {
		return
	}
	s.timing(kind, stage).observe(d, uint64(n))
}

// Charge adds what a request of a kind caused, or several together.
func (s *Stages) Charge(kind int, ops, bytes, fsyncs uint64) {
	if s == nil || uint(kind) >= uint(len(s.costs)) {
		return
	}
	cost := &s.costs[kind]
	if ops > 0 {
		cost.ops.Add(ops)
	}
	if bytes > 0 {
		cost.bytes.Add(bytes)
	}
	if fsyncs > 0 {
		cost.fsyncs.Add(fsyncs)
	}
}
