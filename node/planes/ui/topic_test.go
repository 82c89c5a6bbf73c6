package uiplane

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/api/uiapi"
)

// TestTopicWaitsNoLongerThanItsReader: whoever waits for what somebody else is making may leave, and an answer that is
// still being made is not told to be unchanged.
func TestTopicWaitsNoLongerThanItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, value := make(chan struct{}), "a"
		making := 0
		top := &topic{every: time.Second, rights: func(context.Context, *uiapi.Person) (string, error) { return "", nil },
			make: func(context.Context, *uiapi.Person, url.Values) (any, error) {
				if making++; making > 1 {
					<-stuck
				}
				return value, nil
			}}
		_, index, err := top.Wait(t.Context(), uiapi.Person{}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		made := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var same uiapi.Unchanged
		if _, _, err := top.Wait(short, uiapi.Person{}, nil, index); !errors.As(err, &same) || !same.At.Equal(made) {
			t.Errorf("within the least time between two makings: %v as of %v, want unchanged as of %v", err, same.At, made)
		}
		ended := make(chan error, 1)
		go func() {
			_, _, err := top.Wait(t.Context(), uiapi.Person{}, nil, index)
			ended <- err
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait() // it makes, and is stuck
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, _, err := top.Wait(late, uiapi.Person{}, nil, index); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while somebody else makes it: %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("a reader that has left waited %v", took)
		}
		value = "b"
		close(stuck)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
