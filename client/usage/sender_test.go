package usageclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
)

// TestSender: each event is counted once though answers are lost and the server is full, and the rest is sent at the
// end.
func TestSender(t *testing.T) {
	var mu sync.Mutex
	counted, last, requests := 0, uint64(0), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b, err := batch.Read(body)
		mu.Lock()
		defer mu.Unlock()
		if requests++; err != nil || r.URL.Path != "/v1/usage/batch" || b.Producer != "test" || b.Epoch == 0 {
			t.Error(err, r.URL.Path, b)
			return
		}
		if requests%3 == 1 {
			http.Error(w, "full", http.StatusTooManyRequests)
			return
		}
		if b.Sequence > last+1 || b.Sequence < last {
			t.Errorf("sequence %d after %d", b.Sequence, last)
		}
		if b.Sequence == last+1 {
			counted, last = counted+len(b.Events), b.Sequence
		}
		if requests%3 == 2 { // it is stored, and the answer is lost
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"accepted":1,"rejected":[{"index":0,"error":"wrong"}]}`))
	}))
	defer server.Close()
	c, err := client.New(client.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	rejected := 0
	s, err := New(Config{Client: c, Producer: "test", Events: 10, Waiting: 25, Every: time.Millisecond,
		Rejected: func(usage.Event, string) { rejected++ }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(make([]usage.Event, 24)...); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(usage.Event{}, usage.Event{}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // only the end of it is left
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if counted != 24 || last != 3 || rejected != 3 {
		t.Errorf("%d counted in %d batches, %d rejected", counted, last, rejected)
	}
}
