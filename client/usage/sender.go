// Package usageclient sends usage events to Corbel: in batches, each with a number, so that a batch whose answer was
// lost is sent again and counts once.
//
// What always holds: batches are sent one after the other, and a batch is sent until it is accepted. Send never waits
// for the network: events wait in memory, bounded in number, and beyond that Send refuses them with ErrFull. What was
// refused was not taken; what waits is lost with the process.
//
// Run owns the only goroutine; Send is for any goroutine.
package usageclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
)

// ErrFull refuses events while too many wait.
var ErrFull = errors.New("usage: too many events wait to be sent")

// Config of a Sender.
type Config struct {
	Client *client.Client
	// Producer is the name of this process, unlike that of all others; "" is wrong.
	Producer string
	// Waiting bounds the events that wait; zero means 100,000.
	Waiting int
	// Events is how many a batch has at most; zero means 5,000.
	Events int
	// Every is how long events wait for company; zero means a second.
	Every time.Duration
	// Rejected is told of events that the server will never take; nil is nobody.
	Rejected func(e usage.Event, why string)
	// Failed is told why a batch is sent again; nil is nobody.
	Failed func(err error)
	Clock  clock.Clock
}

// Sender sends events. Make one with New.
type Sender struct {
	cfg     Config
	mu      sync.Mutex // guards waiting
	waiting []usage.Event
	full    chan struct{} // has one element when a batch is full
}

// New makes a Sender and starts nothing.
func New(cfg Config) (*Sender, error) {
	if cfg.Client == nil || cfg.Producer == "" || len(cfg.Producer) > usage.MaxNameBytes-16 {
		return nil, errors.New("usage: a sender needs a client and the name of a producer")
	}
	cfg.Waiting = cmp.Or(cfg.Waiting, 100_000)
	cfg.Events = min(cmp.Or(cfg.Events, 5000), usage.MaxEvents)
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	return &Sender{cfg: cfg, full: make(chan struct{}, 1)}, nil
}

// Send takes events, all or none. One without a time gets that of now.
func (s *Sender) Send(events ...usage.Event) error {
	now := s.cfg.Clock.Now().UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting)+len(events) > s.cfg.Waiting {
		return ErrFull
	}
	for _, e := range events {
		e.Time = cmp.Or(e.Time, now)
		s.waiting = append(s.waiting, e)
	}
	if len(s.waiting) >= s.cfg.Events {
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
	return nil
}

// Run sends until ctx ends, then what still waits, for at most five seconds.
func (s *Sender) Run(ctx context.Context) error {
	epoch := uint64(s.cfg.Clock.Now().UnixNano())
	for sequence := uint64(0); ; {
		t := s.cfg.Clock.NewTimer(s.cfg.Every)
		select {
		case <-ctx.Done():
			t.Stop()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return s.drain(last, epoch, &sequence)
		case <-t.C:
		case <-s.full:
		}
		t.Stop()
		if err := s.drain(ctx, epoch, &sequence); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// drain sends all that waits.
func (s *Sender) drain(ctx context.Context, epoch uint64, sequence *uint64) error {
	for {
		s.mu.Lock()
		n := min(len(s.waiting), s.cfg.Events)
		events := s.waiting[:n:n]
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		b := batch.Batch{Producer: s.cfg.Producer, Epoch: epoch, Sequence: *sequence + 1, Events: events}
		if err := s.deliver(ctx, &b); err != nil {
			return err // the same events are sent with the same sequence the next time
		}
		*sequence++
		s.mu.Lock()
		s.waiting = append([]usage.Event(nil), s.waiting[n:]...)
		s.mu.Unlock()
	}
}

// deliver sends a batch until it is accepted, or ctx ends.
func (s *Sender) deliver(ctx context.Context, b *batch.Batch) error {
	body := batch.Append(nil, b)
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}
	for {
		err := s.post(ctx, b, body)
		var refused *client.Error
		if err == nil {
			return nil
		}
		if errors.As(err, &refused) && refused.Code/100 == 4 && refused.Code != http.StatusTooManyRequests &&
			refused.Code != http.StatusForbidden && refused.Code != http.StatusUnauthorized {
			s.reject(b.Events, err.Error()) // this batch will never be taken
			return nil
		}
		if s.cfg.Failed != nil {
			s.cfg.Failed(err)
		}
		t := s.cfg.Clock.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

func (s *Sender) reject(events []usage.Event, why string) {
	for _, e := range events {
		if s.cfg.Rejected != nil {
			s.cfg.Rejected(e, why)
		}
	}
}

func (s *Sender) post(ctx context.Context, b *batch.Batch, body []byte) error {
	resp, err := s.cfg.Client.Do(ctx, http.MethodPost, "/v1/usage/batch", nil, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Rejected []struct {
			Index int
			Error string
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	for _, r := range answer.Rejected {
		if r.Index >= 0 && r.Index < len(b.Events) {
			s.reject(b.Events[r.Index:r.Index+1], r.Error)
		}
	}
	return nil
}
