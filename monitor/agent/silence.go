package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

// A backend that is frozen keeps its connections open and silent, and heartbeats would tell after 45 s. So when
// something was sent and nothing comes, the backend is pinged; where that brings nothing either it is asked for its
// health over a connection of its own: one that has much to do answers that, and one that does not is left for
// another. While nothing is sent nothing is asked.
const (
	silenceStep   = time.Second
	pingPause     = 5 * time.Second // between such pings, however much is sent
	healthTimeout = 2 * time.Second // for any answer
	healthPause   = 30 * time.Second
	firstDial     = 3 * time.Second // for a backend, while there are others that were not tried
)

var errSilent = errors.New("the backend is silent: it answers neither a ping nor a question for its health")

// watchSilence ends the session when the backend shows no sign of life; it returns when the session ends.
func (l *link) watchSilence() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(silenceStep)
	defer tick.Stop()
	var pinged, asked time.Time // the last ping, the last question
	sent, heard, waits := uint64(0), uint64(0), false
	last := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, h, s := time.Now(), l.heard.Load(), l.sent.Load()
		stood := now.Sub(last) > 3*silenceStep // this process did not run: what came is yet to be read
		last = now
		switch {
		case h != heard || stood:
			waits, sent = false, s
		case !waits:
			if s != sent && now.Sub(pinged) >= pingPause {
				pinged, sent, waits = now, s, l.conn.Ping(nil) == nil
			}
		case now.Sub(asked) >= healthPause:
			asked = now
			within, end := context.WithTimeout(ctx, healthTimeout)
			alive := l.healthy(within)
			end()
			last = time.Now()
			if ctx.Err() == nil && !alive && l.heard.Load() == h && last.Sub(now) < 2*healthTimeout {
				l.silent.Store(true)
				_ = l.conn.Close() // the reader ends the session
				return
			}
		}
		heard = h
	}
}

// healthy reports whether the backend gives any answer.
func (l *link) healthy(ctx context.Context) bool {
	url := "http" + strings.TrimPrefix(strings.TrimSuffix(l.target, "/"), "ws") + "/health"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return true // no backend of ours: its heartbeats have to do
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: l.tls, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil
}
