// Package history records what concurrent clients did and saw, and lets models
// judge whether some order explains it: linearizability checked by porcupine.
//
// An operation begins before its request is sent and ends with one of three
// outcomes: OK (the answer says so), Failed (it certainly had no effect) or
// Unknown (a timeout or a broken connection: it may take effect at any later
// time, also after the run). Failed operations are left out of the judgement,
// unknown ones stay open to the end.
//
// A Recorder is safe for concurrent use and grows with the run: keep histories
// under some 10,000 operations per key. It is for tests and the bench; the
// server does not import it.
package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Kind names what an operation or one step of a transaction does.
type Kind string

// The kinds, by model.
const (
	Get       Kind = "get"       // KV: Value and Index answer; Found false when there is none
	Put       Kind = "put"       // KV: Value
	CAS       Kind = "cas"       // KV: Value if the key's index is Index (0: if the key does not exist); Done answers
	Delete    Kind = "delete"    // KV
	DeleteCAS Kind = "deletecas" // KV: if the key's index is Index or there is no such key; Done answers

	Acquire    Kind = "acquire"    // lock: Done and, when acquired, Index (the fence) answer
	Release    Kind = "release"    // lock: gives up the fence Index; Done answers
	Invalidate Kind = "invalidate" // lock: the holder may lose it from now on (session killed or expired)

	Add    Kind = "add"    // set: Value
	Remove Kind = "remove" // set: Value
	List   Kind = "list"   // set: Values answer
)

// Step is one thing done to one key, and what came back.
type Step struct {
	Kind  Kind   `json:"kind"`
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
	// Index is the expected index of a CAS, a lock's fence, or the index that a Get returned; zero means not known.
	Index uint64 `json:"index,omitempty"`
	// Found tells whether a Get found the key, Done whether a conditional step took effect.
	Found  bool     `json:"found,omitempty"`
	Done   bool     `json:"done,omitempty"`
	Values []string `json:"values,omitempty"`
}

// Outcome says how an operation ended.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "fail"
	Unknown Outcome = "unknown"
)

// Operation is one request: one step, or the steps of a transaction that took
// effect together. Times are nanoseconds since the recorder began.
type Operation struct {
	Client  int     `json:"client"`
	Steps   []Step  `json:"steps"`
	Start   int64   `json:"start"`
	End     int64   `json:"end,omitempty"`
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
}

// Recorder collects operations.
type Recorder struct {
	begin time.Time
	mu    sync.Mutex // guards ops
	ops   []*Operation
}

// NewRecorder begins a history now.
func NewRecorder() *Recorder { return &Recorder{begin: time.Now()} }

// Pending is an operation on its way. End it exactly once.
type Pending struct {
	r  *Recorder
	op *Operation
}

// Begin notes that client is about to send steps.
func (r *Recorder) Begin(client int, steps ...Step) *Pending {
	op := &Operation{Client: client, Steps: slices.Clone(steps), Outcome: Unknown}
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Start = int64(time.Since(r.begin)) // under the lock: the order of ops is the order of starts
	r.ops = append(r.ops, op)
	return &Pending{r, op}
}

// OK ends the operation with the steps as they were answered; none means as they were sent.
func (p *Pending) OK(answered ...Step) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.op.End, p.op.Outcome = int64(time.Since(p.r.begin)), OK
	if len(answered) > 0 {
		p.op.Steps = slices.Clone(answered)
	}
}

// Fail ends an operation that certainly had no effect.
func (p *Pending) Fail(err error) { p.end(Failed, err) }

// Unknown ends an operation that may or may not take effect.
func (p *Pending) Unknown(err error) { p.end(Unknown, err) }

func (p *Pending) end(outcome Outcome, err error) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.op.End, p.op.Outcome = int64(time.Since(p.r.begin)), outcome
	if err != nil {
		p.op.Error = err.Error()
	}
}

// History returns a copy of what was recorded so far; operations on their way are Unknown.
func (r *Recorder) History() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Operation, len(r.ops))
	for i, op := range r.ops {
		list[i] = *op
	}
	return list
}

// Write writes a history as JSON lines.
func Write(w io.Writer, ops []Operation) error {
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	for _, op := range ops {
		if err := encoder.Encode(op); err != nil {
			return err
		}
	}
	return out.Flush()
}

// Read reads what Write wrote.
func Read(r io.Reader) ([]Operation, error) {
	var ops []Operation
	decoder := json.NewDecoder(bufio.NewReader(r))
	for {
		var op Operation
		err := decoder.Decode(&op)
		if err == io.EOF {
			return ops, nil
		}
		if err != nil {
			return nil, fmt.Errorf("history: operation %d: %w", len(ops)+1, err)
		}
		ops = append(ops, op)
	}
}
