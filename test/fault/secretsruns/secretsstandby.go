package secretsruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/kit/spawn"
	faultrun "corbel.dev/corbel/test/fault"
)

// ackedAt is a write that was acknowledged by a time.
type ackedAt struct {
	at time.Time
	n  int
}

// readStated reads a key of the load at some server, and holds the answer against what it says of its age.
func (r *SecretsRun) readStated(ctx context.Context, s *faultrun.Server, rng *rand.Rand) {
	key := someKey(r, rng)
	if key == "" {
		return
	}
	var got struct {
		Data struct {
			N int `json:"n"`
		} `json:"data"`
	}
	if by, age, ok := r.stated(ctx, s, "secret/"+key, &got); ok {
		r.judgeRead(key, got.Data.N, by, age)
	}
}

// stated reads something at a server, which may be a standby, and returns the time as of which the answer is right by
// what it says of its age: one of a standby is at most so many milliseconds older than the request, one without a
// word is not older at all.
func (r *SecretsRun) stated(ctx context.Context, s *faultrun.Server, path string, out any) (by time.Time, age string,
	ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+"/v1/"+path, nil)
	if err != nil {
		return by, "", false
	}
	req.Header.Set("X-Vault-Token", r.Token)
	begun := time.Now()
	resp, err := r.client.Do(req)
	if err != nil {
		return by, "", false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound ||
		json.NewDecoder(resp.Body).Decode(out) != nil {
		return by, "", false
	}
	age = resp.Header.Get("X-Corbel-LastContact")
	millis, err := strconv.Atoi(age)
	if age != "" && err != nil {
		r.wrongRead(fmt.Errorf("%s says X-Corbel-LastContact %q", s.Name, age))
		return by, "", false
	}
	return begun.Add(-time.Duration(millis) * time.Millisecond), age, true
}

// someKey is one of the keys of this cycle, "" while there is none.
func someKey(r *SecretsRun, rng *rand.Rand) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := rng.IntN(max(len(r.sent), 1))
	for key := range r.sent {
		if at--; at < 0 {
			return key
		}
	}
	return ""
}

// judgeRead holds a number that was read against what was acknowledged by a time.
func (r *SecretsRun) judgeRead(key string, n int, by time.Time, age string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age != "" {
		r.report.StandbyReads++
	}
	for _, a := range r.history[key] {
		if n < a.n && !a.at.After(by) {
			r.wrong = errors.Join(r.wrong, fmt.Errorf("%s was read as %d, at most %q ms old: %d had been acknowledged %s "+
				"before that", key, n, age, a.n, by.Sub(a.at)))
			return
		}
	}
}

func (r *SecretsRun) wrongRead(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = errors.Join(r.wrong, err)
}

// standbysRead has a standby answer once more, where one can, and says what was wrong with the reads of a cycle.
func (r *SecretsRun) standbysRead(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(1, 1)) // any key does
	// of what is not there the active one answers
	if before := r.report.StandbyReads; r.cfg.Storage == "raft" && r.cfg.Servers > 1 && len(r.acked) > 0 {
		if err := spawn.Until(ctx, time.Minute, "a standby to answer a read", func() error {
			for _, s := range r.Servers {
				r.readStated(ctx, s, rng)
			}
			if r.report.StandbyReads == before {
				return errors.New("none did")
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return r.wrong
}
