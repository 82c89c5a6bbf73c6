package client

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// Watch is one of many that share a connection.
type Watch struct {
	ID    string // names it in events
	Path  string // of a read that blocks, with its query
	Index uint64 // tell only what is newer; 0: begin with the state of now
}

// WatchEvent is what a watch saw. Body is the answer's JSON (null when it had none), or
// Error its text when Status says so.
type WatchEvent struct {
	ID     string
	Index  uint64
	Status int
	Body   json.RawMessage
	Error  string `json:",omitempty"`
}

const (
	// watchSilence is after how long without a line a stream counts as dead: four heartbeats.
	watchSilence = time.Minute
	// maxWatchLine bounds one event.
	maxWatchLine = 64 << 20
)

// Watches follows many reads over one connection. A stream that breaks is yielded as an
// error, then opened again after a growing pause, from what was seen; the loop ends with
// ctx, when the consumer stops, or when the server refuses the watches.
func (c *Client) Watches(ctx context.Context, list []Watch) iter.Seq2[WatchEvent, error] {
	return func(yield func(WatchEvent, error) bool) {
		retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
		list := append([]Watch(nil), list...)
		at := make(map[string]int, len(list))
		for i, w := range list {
			at[w.ID] = i
		}
		for ctx.Err() == nil {
			stopped := false
			err := c.watchOnce(ctx, list, func(e WatchEvent) bool {
				retry.Reset()
				if i, ok := at[e.ID]; ok && e.Index > 0 {
					list[i].Index = e.Index
				}
				stopped = !yield(e, nil)
				return !stopped
			})
			if stopped || ctx.Err() != nil {
				return
			}
			if !yield(WatchEvent{}, err) || refused(err) {
				return
			}
			timer := time.NewTimer(retry.Next())
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// watchOnce reads one stream to its end.
func (c *Client) watchOnce(ctx context.Context, list []Watch, take func(WatchEvent) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.Do(ctx, http.MethodPost, "/v1/watch", nil, list)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	silence := time.AfterFunc(watchSilence, cancel)
	defer silence.Stop()
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, maxWatchLine)
	for in.Scan() {
		silence.Reset(watchSilence)
		var e WatchEvent
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			return errkind.E(errkind.Unavailable, "read an event", err)
		}
		if e.ID != "" && !take(e) {
			return nil
		}
	}
	return errkind.Errorf(errkind.Unavailable, "%s ended the stream of watches", c.address)
}
