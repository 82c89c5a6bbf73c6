package secretsruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/spawn"
	faultrun "corbel.dev/corbel/test/fault"
)

// probes are writes that the active server has under way when it is stopped, and finds when it wakes up.
const probes = 8

// handedTime is within what a request that a stopped server has is to end once another one leads; its client would
// wait longer.
const handedTime = 15 * time.Second

// wakeReads is for how long reads go on at a server that has woken up.
const wakeReads = 100 * time.Millisecond

// sleeper stops the active server under writes, has another one lead and overwrite what the first was to write, and
// wakes the first up: it may say what it likes, but changes nothing. What a standby had handed to it has ended by
// then. Those writes carry a header by which a standby hands nothing on, so whatever they change was changed by who
// got them. stop ends the other load.
func (r *SecretsRun) sleeper(ctx context.Context, cycle int, stop func()) error {
	old, err := r.Active(ctx)
	if err != nil {
		return err
	}
	var other *faultrun.Server
	for _, s := range r.Servers {
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
				_, _, _ = r.Do(ctx, old, "PUT", key(i), r.Token, map[string]any{"by": "old"}, "X-Vault-No-Request-Forwarding",
					"true")
			}
		})
	}
	through := r.through(ctx, writing, other, cycle, &under)
	if err := spawn.Sleep(ctx, 20*time.Millisecond); err != nil {
		return err
	}
	if err := old.Freeze(); err != nil {
		return err
	}
	defer old.Thaw()
	through.stopped()
	if err := r.progress(ctx, old); err != nil {
		return err
	}
	if err := through.end(ctx); err != nil {
		return err
	}
	stop()
	var acked [probes]time.Time
	for i := range probes {
		if err := spawn.Until(ctx, time.Minute, "the new active server to write", func() error {
			code, body, err := r.Do(ctx, other, "PUT", key(i), r.Token, map[string]any{"by": "new"})
			if err != nil || code >= 300 {
				return fmt.Errorf("status %d, %s, %w", code, body, err)
			}
			acked[i] = time.Now()
			return nil
		}); err != nil {
			return err
		}
	}
	end()
	led := lastLed(old)
	read := r.wakes(ctx, old, key, acked)
	if err := spawn.Sleep(ctx, 20*time.Millisecond); err != nil { // they are in its sockets
		return errors.Join(err, old.Thaw(), read())
	}
	if err := old.Thaw(); err != nil {
		return errors.Join(err, read())
	}
	err = read()
	under.Wait()
	err = errors.Join(err, r.allNew(ctx, key))
	if err != nil && lastLed(old) != led {
		return nil // it became the leader again while it had them: they were as good as any write of that time
	}
	return err
}

// through is writes that a standby hands on to the active server.
type through struct {
	ended  [probes]atomic.Int64
	before [probes]int64
}

// through writes by way of a standby until writing ends, which workers wait for.
func (r *SecretsRun) through(ctx, writing context.Context, by *faultrun.Server, cycle int,
	workers *sync.WaitGroup) *through {
	t := &through{}
	for i := range t.ended {
		workers.Go(func() {
			for writing.Err() == nil {
				_, _, _ = r.Do(ctx, by, "PUT", fmt.Sprintf("secret/fence/%d-through-%d", cycle, i), r.Token,
					map[string]any{"by": "standby"})
				t.ended[i].Add(1)
			}
		})
	}
	return t
}

// stopped is told that the active server was.
func (t *through) stopped() {
	for i := range t.ended {
		t.before[i] = t.ended[i].Load()
	}
}

// end waits until what the stopped server has of them has ended.
func (t *through) end(ctx context.Context) error {
	return spawn.Until(ctx, handedTime, "what a standby had handed to the stopped server to end", func() error {
		for i := range t.ended {
			if t.ended[i].Load() == t.before[i] {
				return fmt.Errorf("request %d has not ended", i)
			}
		}
		return nil
	})
}

// wakes begins to read at a server that sleeps: when it wakes up, as the active one it knows what another one wrote
// meanwhile, as a standby it says how old it is. What it returns waits for the answers, and says what was wrong with
// them.
func (r *SecretsRun) wakes(ctx context.Context, old *faultrun.Server, key func(int) string,
	acked [probes]time.Time) func() error {
	var wrong [probes]error
	var reads sync.WaitGroup
	for i, at := range acked {
		reads.Go(func() {
			wrong[i] = r.wakeRead(ctx, old, key(i), at)
			for until := time.Now().Add(wakeReads); time.Now().Before(until) && wrong[i] == nil; {
				wrong[i] = r.wakeRead(ctx, old, key(i), at)
			}
		})
	}
	return func() error {
		reads.Wait()
		return errors.Join(wrong[:]...)
	}
}

// wakeRead is one of them.
func (r *SecretsRun) wakeRead(ctx context.Context, old *faultrun.Server, key string, acked time.Time) error {
	var got struct {
		Data struct {
			By string `json:"by"`
		} `json:"data"`
	}
	by, age, ok := r.stated(ctx, old, key, &got)
	if ok && got.Data.By != "new" && !acked.After(by) {
		return fmt.Errorf("%s was read as %q at %s, at most %q ms old: another was acknowledged %s before that", key,
			got.Data.By, old.Name, age, by.Sub(acked))
	}
	return nil
}

// lastLed is what a server said when it last became the active one.
func lastLed(s *faultrun.Server) string {
	log := s.Log()
	at := strings.LastIndex(log, "this server is active")
	if at < 0 {
		return ""
	}
	line, _, _ := strings.Cut(log[at:], "\n")
	return line
}

// allNew finds what the new active server wrote, and nothing else, on every server.
func (r *SecretsRun) allNew(ctx context.Context, key func(int) string) error {
	for i := range probes {
		for _, s := range r.Servers {
			_, body, err := r.steady(ctx, s, "GET", key(i), r.Token, http.StatusOK)
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
				_, again, err := r.steady(ctx, s, "GET", key(i), r.Token, http.StatusOK)
				return fmt.Errorf("%s says %q at %s (and then %s, %w): a server that slept through the term of another wrote "+
					"on it, or answers of what was before", key(i), got.Data.By, s.Name, again, err)
			}
		}
		r.report.Fenced++
	}
	return nil
}
