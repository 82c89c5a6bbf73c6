package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reads beside logins are so many a second: they tell how long a read takes while hashes want all cores, not how many
// reads there are.
const (
	readers        = 16
	readsPerSecond = 2000
)

// RunLogins measures logins by password, of which bcrypt is most, and what they do to reads: those are measured first
// without, then beside them.
func RunLogins(ctx context.Context, o SecretsOptions) (*Result, error) {
	return runRows(ctx, "logins", &o, func(c *vaultCluster) ([]Row, error) {
		s := &storm{vaultCluster: c, o: &LeasesOptions{SecretsOptions: o}, r: &Result{}}
		if err := s.prepare(ctx); err != nil {
			return nil, err
		}
		defer c.disable(ctx, "mounts")
		if err := c.enable(ctx, "auth", "userpass"); err != nil {
			return nil, err
		}
		defer c.disable(ctx, "auth")
		if err := c.call(ctx, "POST", "auth/"+secretsMount+"/users/bench", map[string]string{"password": "correct horse"},
			nil); err != nil {
			return nil, err
		}
		return s.logins(ctx)
	})
}

func (s *storm) logins(ctx context.Context) ([]Row, error) {
	raw := s.request("POST", "auth/"+secretsMount+"/login/bench", "",
		mustJSON(map[string]string{"password": "correct horse"}))
	login := loadSpec{next: func(int, int64) []byte { return raw }}
	read := loadSpec{connections: readers, pace: readers * time.Second / readsPerSecond, next: s.read}
	what := s.backend() + ": userpass logins (bcrypt)"
	alone, err := s.measure(ctx, what, "", login)
	if err != nil {
		return nil, err
	}
	quiet, err := s.measure(ctx, fmt.Sprintf("%s: KV read, quiet, %d/s", s.backend(), readsPerSecond), "", read)
	if err != nil {
		return nil, err
	}
	var beside, meanwhile Row
	var failed [2]error
	var both sync.WaitGroup
	both.Go(func() { beside, failed[0] = s.measure(ctx, what+" beside reads", "", login) })
	both.Go(func() {
		meanwhile, failed[1] = s.measure(ctx, fmt.Sprintf("%s: KV read beside logins, %d/s", s.backend(), readsPerSecond), "",
			read)
	})
	both.Wait()
	meanwhile.Note = fmt.Sprintf("p99 is %.1f times the quiet one", meanwhile.Millis["p99"]/quiet.Millis["p99"])
	return []Row{alone, quiet, meanwhile, beside}, errors.Join(failed[:]...)
}
