package telemetry

import (
	"context"
	"sync/atomic"
	"time"
)

// Account is what one request costs. Storage is told through the request's context: it charges whom it works for.
type Account struct {
	Stored  atomic.Int64 // nanoseconds in the storage
	Commits atomic.Int64
	Spent   Spent
	carried carried
}

// WithAccount has what is done under ctx be charged to a.
func WithAccount(ctx context.Context, a *Account) context.Context {
	a.carried = carriedBy(ctx)
	a.carried.account = a
	return with(ctx, &a.carried)
}

// ChargeStorage puts a call of the storage on the account of the request that it was made for, where there is one.
func ChargeStorage(ctx context.Context, took time.Duration, commits int64) {
	if a := carriedBy(ctx).account; a != nil {
		a.Stored.Add(int64(took))
		a.Commits.Add(commits)
	}
}

// Lasting observes how long something takes, at its end: defer t.Lasting()().
func (t *Timing) Lasting() func() {
	begin := time.Now()
	return func() { t.Observe(time.Since(begin)) }
}
