package secretsload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"corbel.dev/corbel/bench"
)

// Reads beside logins are so many a second: they tell how long a read takes while hashes want all cores, not how many
// reads there are.
const (
	readers        = 16
	readsPerSecond = 2000
)

// RunLogins measures logins by password, of which bcrypt is most, and what they do to reads: those are measured first
// without, then beside them.
func RunLogins(ctx context.Context, o SecretsOptions) (*bench.Result, error) {
	return runRows(ctx, "logins", &o, func(c *VaultCluster) ([]bench.Row, error) {
		s := &storm{VaultCluster: c, o: &LeasesOptions{SecretsOptions: o}, r: &bench.Result{}}
		if err := s.prepare(ctx); err != nil {
			return nil, err
		}
		defer c.disable(ctx, "mounts")
		if err := c.enable(ctx, "auth", "userpass"); err != nil {
			return nil, err
		}
		defer c.disable(ctx, "auth")
		if err := c.Call(ctx, "POST", "auth/"+SecretsMount+"/users/bench", map[string]string{"password": "correct horse"},
			nil); err != nil {
			return nil, err
		}
		return s.logins(ctx)
	})
}

func (s *storm) logins(ctx context.Context) ([]bench.Row, error) {
	raw := s.Request("POST", "auth/"+SecretsMount+"/login/bench", "",
		mustJSON(map[string]string{"password": "correct horse"}))
	login := bench.LoadSpec{Next: func(int, int64) []byte { return raw }}
	read := bench.LoadSpec{Connections: readers, Pace: readers * time.Second / readsPerSecond, Next: s.read}
	what := s.backend() + ": userpass logins (bcrypt)"
	alone, err := s.Measure(ctx, what, "", login)
	if err != nil {
		return nil, err
	}
	quiet, err := s.Measure(ctx, fmt.Sprintf("%s: KV read, quiet, %d/s", s.backend(), readsPerSecond), "", read)
	if err != nil {
		return nil, err
	}
	var beside, meanwhile bench.Row
	var failed [2]error
	var both sync.WaitGroup
	both.Go(func() { beside, failed[0] = s.Measure(ctx, what+" beside reads", "", login) })
	both.Go(func() {
		meanwhile, failed[1] = s.Measure(ctx, fmt.Sprintf("%s: KV read beside logins, %d/s", s.backend(), readsPerSecond), "",
			read)
	})
	both.Wait()
	meanwhile.Note = fmt.Sprintf("p99 is %.1f times the quiet one", meanwhile.Millis["p99"]/quiet.Millis["p99"])
	return []bench.Row{alone, quiet, meanwhile, beside}, errors.Join(failed[:]...)
}
