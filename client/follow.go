package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"corbel.dev/corbel/kit/backoff"
)

// Follow repeats a blocking read and yields each answer whose index moved, the first
// at once. A failed read is yielded as an error, then tried again after a growing
// pause; the loop ends with ctx or when the consumer stops. Errors that a retry
// cannot mend (the server refused the request) end it too.
func Follow[T any](ctx context.Context, q Query,
	read func(context.Context, Query) (T, Meta, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
		q.Index = 0
		for ctx.Err() == nil {
			v, meta, err := read(ctx, q)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				if !yield(v, err) || refused(err) {
					return
				}
				q.Index = 0
				timer := time.NewTimer(retry.Next())
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
				timer.Stop()
				continue
			}
			retry.Reset()
			moved := q.Index == 0 || meta.Index != q.Index
			if meta.Index < q.Index {
				q.Index = 0 // the server restored a snapshot: begin again
			} else {
				q.Index = max(meta.Index, 1)
			}
			if moved && !yield(v, nil) {
				return
			}
		}
	}
}

func refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code/100 == 4 && e.Code != http.StatusTooManyRequests && e.Code != http.StatusNotFound
}
