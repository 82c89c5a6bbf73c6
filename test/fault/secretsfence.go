package faultrun

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// probes are writes that the active server has under way when it is stopped, and finds when it wakes up.
const probes = 8

// sleeper stops the active server under writes, has another one reign and overwrite what the first was to write, and wakes
// the first up: it may say what it likes, but changes nothing. Those writes carry a header by which a standby hands
// nothing on, so whatever they change was changed by who got them. stop ends the other load.
func (r *secretsRun) sleeper(ctx context.Context, cycle int, stop func()) error {
	old, err := r.active(ctx)
	if err != nil {
		return err
	}
	var other *Server
	for _, s := range r.servers {
		if s != old {
			other = s
		}
	}
	key := func(i int) string { return fmt.Sprintf("secret/fence/%d-%d", cycle, i) }
	writing, end := context.WithCancel(ctx)
	defer end()
	var under sync.WaitGroup
	for i := range probes {
		under.Go(func() {
			for writing.Err() == nil { // the last one is asked of a server that sleeps
				_, _, _ = r.do(ctx, old, "PUT", key(i), r.token, map[string]any{"by": "old"}, "X-Vault-No-Request-Forwarding", "true")
			}
		})
	}
	if err := wait(ctx, 20*time.Millisecond); err != nil {
		return err
	}
	if err := old.Freeze(); err != nil {
		return err
	}
	defer old.Thaw()
	if err := r.progress(ctx, old); err != nil {
		return err
	}
	stop()
	for i := range probes {
		if err := until(ctx, time.Minute, "the new active server to write", func() error {
			code, body, err := r.do(ctx, other, "PUT", key(i), r.token, map[string]any{"by": "new"})
			if err != nil || code >= 300 {
				return fmt.Errorf("status %d, %s, %w", code, body, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	end()
	reigned := lastReign(old)
	if err := old.Thaw(); err != nil {
		return err
	}
	under.Wait()
	err = r.allNew(ctx, key)
	if err != nil && lastReign(old) != reigned {
		return nil // it came to reign anew while it had them: they were as good as any write of that time
	}
	return err
}

// lastReign is what a server said when it last became the active one.
func lastReign(s *Server) string {
	log := s.Log()
	at := strings.LastIndex(log, "this server is the active one")
	if at < 0 {
		return ""
	}
	line, _, _ := strings.Cut(log[at:], "\n")
	return line
}

// allNew finds what the new active server wrote, and nothing else, on every server.
func (r *secretsRun) allNew(ctx context.Context, key func(int) string) error {
	for i := range probes {
		for _, s := range r.servers {
			_, body, err := r.steady(ctx, s, "GET", key(i), r.token, http.StatusOK)
			if err != nil {
				return err
			}
			var got struct {
				Data struct {
					By string `json:"by"`
				} `json:"data"`
			}
			if err := json.Unmarshal(body, &got); err != nil {
				return err
			}
			if got.Data.By != "new" {
				_, again, err := r.steady(ctx, s, "GET", key(i), r.token, http.StatusOK)
				return fmt.Errorf("%s says %q at %s (and then %s, %w): a server that slept through the reign of another wrote on it, or answers of what was before", key(i), got.Data.By, s.Name, again, err)
			}
		}
		r.report.Fenced++
	}
	return nil
}
