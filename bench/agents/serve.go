package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"corbel.dev/corbel/kit/childcall"
)

// The calls that Serve answers.
const (
	CallStart  = "start"  // Config -> nothing: opens the sessions
	CallCounts = "counts" // -> Counts
	CallFlood  = "flood"  // events without being asked, as fast as they are taken
	CallPace   = "pace"   // Pace: events without being asked
	CallQuiet  = "quiet"  // no events any more; keepalives go on
)

// Serve plays agents for the parent process on the other side of in and out.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := &service{}
	ctx, cancel := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer cancel()
	return childcall.Serve(ctx, in, out, func(_ context.Context, method string, body json.RawMessage) (any, error) {
		return s.handle(ctx, method, body)
	})
}

type service struct {
	fleet *Fleet
	wg    sync.WaitGroup
	ended chan error
}

func (s *service) handle(ctx context.Context, method string, body json.RawMessage) (any, error) {
	if (s.fleet == nil) != (method == CallStart) {
		return nil, fmt.Errorf("call %q: the first call, and no other, must be %q", method, CallStart)
	}
	switch method {
	case CallStart:
		var cfg Config
		if err := json.Unmarshal(body, &cfg); err != nil {
			return nil, err
		}
		f, err := New(cfg)
		if err != nil {
			return nil, err
		}
		s.fleet, s.ended = f, make(chan error, 1)
		s.wg.Go(func() { s.ended <- f.Run(ctx) })
		return nil, nil
	case CallCounts:
		select {
		case err := <-s.ended:
			return nil, errors.Join(errors.New("the agents ended"), err)
		default:
		}
		return s.fleet.Counts(), nil
	case CallFlood:
		s.fleet.flood.Store(1)
		return nil, nil
	case CallPace:
		var pace Pace
		if err := json.Unmarshal(body, &pace); err != nil {
			return nil, err
		}
		s.fleet.flood.Store(max(pace.Flood, 0))
		s.fleet.pace.Store(max(pace.Rate, 0))
		return nil, nil
	case CallQuiet:
		s.fleet.quiet.Store(true)
		return nil, nil
	}
	return nil, fmt.Errorf("unknown call %q", method)
}
