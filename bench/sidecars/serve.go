package sidecars

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"corbel.dev/corbel/kit/childcall"
)

// The calls that Serve answers.
const (
	CallStart   = "start"   // Config -> nothing: opens the connections
	CallCounts  = "counts"  // -> Counts
	CallArm     = "arm"     // Watch -> nothing
	CallWait    = "wait"    // Wait -> Waited
	CallCollect = "collect" // -> []int64, as Fleet.Collect
	CallTrace   = "trace"   // []int -> []Trace, as Fleet.Trace
)

// Wait says how long a call may wait: until all sidecars have the armed change,
// or are warm when Warm is set.
type Wait struct {
	Most time.Duration `json:"most"`
	Warm bool          `json:"warm,omitempty"`
}

// Waited is how many of them it are.
type Waited struct {
	Done, Of int64
}

// Serve runs a fleet of sidecars for the parent process on the other side of in and out.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := &service{}
	ctx, cancel := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer cancel()
	return childcall.Serve(ctx, in, out, s.handle)
}

type service struct {
	fleet *Fleet
	full  <-chan struct{}
	wg    sync.WaitGroup
	ended chan error
}

func (s *service) handle(ctx context.Context, method string, body json.RawMessage) (any, error) {
	if (s.fleet == nil) != (method == CallStart) {
		return nil, fmt.Errorf("call %q: the first call, and no other, must be %q", method, CallStart)
	}
	switch method {
	case CallStart:
		return nil, s.start(ctx, body)
	case CallCounts:
		return s.fleet.Counts(), nil
	case CallArm:
		var w Watch
		if err := json.Unmarshal(body, &w); err != nil {
			return nil, err
		}
		full, err := s.fleet.Arm(w)
		s.full = full
		return nil, err
	case CallWait:
		var w Wait
		if err := json.Unmarshal(body, &w); err != nil {
			return nil, err
		}
		return s.wait(ctx, w)
	case CallCollect:
		return s.fleet.Collect()
	case CallTrace:
		var places []int
		if err := json.Unmarshal(body, &places); err != nil {
			return nil, err
		}
		return s.fleet.Trace(places), nil
	}
	return nil, fmt.Errorf("unknown call %q", method)
}

func (s *service) start(ctx context.Context, body json.RawMessage) error {
	var cfg Config
	if err := json.Unmarshal(body, &cfg); err != nil {
		return err
	}
	f, err := New(cfg)
	if err != nil {
		return err
	}
	s.fleet, s.ended = f, make(chan error, 1)
	s.wg.Go(func() { s.ended <- f.Run(ctx) })
	return nil
}

func (s *service) wait(ctx context.Context, w Wait) (Waited, error) {
	end := time.NewTimer(w.Most)
	defer end.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	full := s.full
	if w.Warm {
		full = nil
	}
	for {
		got := Waited{Done: s.fleet.Arrived(), Of: int64(s.fleet.total)}
		if w.Warm {
			got.Done = s.fleet.Counts().Warm
		}
		if got.Done == got.Of {
			return got, nil
		}
		select {
		case err := <-s.ended:
			return got, errors.Join(errors.New("the sidecars ended"), err)
		case <-ctx.Done():
			return got, ctx.Err()
		case <-end.C:
			return got, nil
		case <-full:
		case <-tick.C:
		}
	}
}
