package childcall

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// pair connects a caller with a served handler.
func pair(t *testing.T, handle Handler) *Caller {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Serve(t.Context(), inR, outW, handle) }()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("Serve did not return after its input ended")
		}
	})
	return NewCaller(inW, outR)
}

func TestCalls(t *testing.T) {
	c := pair(t, func(_ context.Context, method string, body json.RawMessage) (any, error) {
		if method == "fail" {
			return nil, errors.New("no such thing")
		}
		var s string
		err := json.Unmarshal(body, &s)
		return method + s, err
	})
	long := strings.Repeat("x", 300_000)
	for _, body := range []string{"", "1", long} {
		var got string
		if err := c.Call(t.Context(), "echo", body, &got); err != nil || got != "echo"+body {
			t.Fatalf("%d bytes: answer of %d bytes, error %v", len(body), len(got), err)
		}
	}
	if err := c.Call(t.Context(), "fail", nil, nil); err == nil || err.Error() != "fail: no such thing" {
		t.Fatalf("want the handler's error, got %v", err)
	}
	if err := c.Call(t.Context(), "echo", "after", nil); err != nil {
		t.Fatalf("a refusal broke the line: %v", err)
	}
}

func TestAnEndedContextBreaksTheLine(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	c := pair(t, func(context.Context, string, json.RawMessage) (any, error) {
		close(begun)
		<-release
		return nil, nil
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if err := c.Call(ctx, "slow", nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("want the context's error, got %v", err)
	}
	if err := c.Call(t.Context(), "more", nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("a broken line took a call: %v", err)
	}
}
