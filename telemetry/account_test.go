package telemetry

import (
	"testing"
	"time"
)

// A context carries trace, request and account, whichever came first; without an account nobody is charged.
func TestAccount(t *testing.T) {
	var a Account
	r := &Request{}
	ctx := WithRequest(WithAccount(WithTrace(t.Context(), "trace"), &a), r)
	if TraceOf(ctx) != "trace" || requestOf(ctx) != r {
		t.Errorf("the context carries %q, %p", TraceOf(ctx), requestOf(ctx))
	}
	ChargeStorage(ctx, time.Second, 2)
	ChargeStorage(ctx, time.Second, 0)
	ChargeStorage(t.Context(), time.Second, 1)
	if a.Stored.Load() != int64(2*time.Second) || a.Commits.Load() != 2 {
		t.Errorf("charged %v, %d commits", time.Duration(a.Stored.Load()), a.Commits.Load())
	}
}
