package leadership

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTerms: calls to a former leader end after the grace, those to the one that leads go on.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leads atomic.Value
		leads.Store("a")
		change := make(chan chan struct{}, 1)
		change <- make(chan struct{})
		r := &Terms{Leader: func() string { return leads.Load().(string) }, Changes: func() <-chan struct{} {
			c := <-change
			change <- c
			return c
		}}
		now := func(leader string) {
			leads.Store(leader)
			close(<-change)
			change <- make(chan struct{})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		a := r.Of("a")
		now("b")
		b := r.Of("b")
		if a.Err() != nil {
			t.Error("the former leader had no grace")
		}
		<-time.After(grace / 2)
		now("a")
		now("b")
		<-time.After(2 * grace)
		synctest.Wait()
		if a.Err() == nil || b.Err() != nil {
			t.Errorf("after the grace: a %v, b %v", a.Err(), b.Err())
		}
		cancel()
		if err := <-done; err != nil || b.Err() == nil {
			t.Errorf("after the end: %v, b %v", err, b.Err())
		}
	})
}

// TestVacancy: it lasts since no leader is known, and of a process that has just started since its start.
func TestVacancy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leads atomic.Value
		leads.Store("")
		changes := make(chan chan struct{}, 1)
		changes <- make(chan struct{})
		r := &Terms{Leader: func() string { return leads.Load().(string) }, Changes: func() <-chan struct{} {
			c := <-changes
			changes <- c
			return c
		}}
		now := func(leader string) {
			leads.Store(leader)
			close(<-changes)
			changes <- make(chan struct{})
			synctest.Wait()
		}
		<-time.After(time.Hour) // of the machine, before the process
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		for _, step := range []struct {
			leader string
			after  time.Duration
			want   time.Duration // of the vacancy
		}{{"", time.Second, time.Second}, {"", time.Second, 2 * time.Second}, {"a", time.Minute, 0},
			{"", time.Second, time.Second}, {"b", 0, 0}} {
			now(step.leader)
			<-time.After(step.after)
			if got := time.Since(r.Vacant()); got != step.want {
				t.Errorf("%v after %q led: the vacancy lasts %v, want %v", step.after, step.leader, got, step.want)
			}
		}
		cancel()
		<-done
	})
}
