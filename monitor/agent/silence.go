package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

// A frozen backend keeps its connections open and says nothing, and heartbeats would notice after 45 s. So a backend
// to which something was sent is pinged at once. If it does not answer, it is asked for its health over a connection
// of its own: an overloaded backend answers that. A backend that answers neither is left for another one, within 2 s
// of what was sent. Nothing is asked while nothing is sent, and no timer runs.
const (
	pingPause     = time.Second             // between pings, however much is sent
	pongTimeout   = 400 * time.Millisecond  // for the answer to a ping
	healthTimeout = 1400 * time.Millisecond // for any answer to a question for its health
	healthPause   = 30 * time.Second        // between such questions: an overloaded backend must not drown in them
	firstDial     = 3 * time.Second         // for a backend, while there are others that were not tried
)

var errSilent = errors.New("the backend is silent: it answers neither a ping nor a question for its health")

// spoke notes that something was sent, for watchSilence.
func (l *link) spoke() {
	select {
	case l.sent <- struct{}{}:
	default: // it is to look already
	}
}

// watchSilence ends the session when the backend shows no sign of life; it returns when the session ends.
func (l *link) watchSilence() {
	var pinged, asked time.Time // the last ping, the last question
	for {
		select {
		case <-l.sent:
		case <-l.done:
			return
		}
		if !pinged.IsZero() {
			l.pause(pingPause - time.Since(pinged))
		}
		pinged = time.Now()
		heard := l.heard.Load()
		if l.conn.Ping(nil) != nil {
			continue // the reader ends the session
		}
		for l.pause(pongTimeout) > 2*pongTimeout {
			// This process stood still: the answer may be there, unread.
		}
		if l.heard.Load() != heard || time.Since(asked) < healthPause {
			continue
		}
		asked = time.Now()
		alive := l.healthy(healthTimeout)
		if !alive && l.heard.Load() == heard && time.Since(asked) < 2*healthTimeout {
			l.silent.Store(true)
			_ = l.conn.Close() // the reader ends the session
			return
		}
	}
}

// pause waits for d, or until the session ends, and returns how long that took.
func (l *link) pause(d time.Duration) time.Duration {
	begin := time.Now()
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.done:
		}
	}
	return time.Since(begin)
}

// healthy reports whether the backend gives any answer within that time.
func (l *link) healthy(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	go func() { // ends with ctx, as this does
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	}()
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
