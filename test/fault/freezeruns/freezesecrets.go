package freezeruns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	faultrun "corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/secretsruns"
)

// RunSecretsFreezes freezes the active server of the secrets plane, round by round, while a client of each standby
// writes a secret of its own and reads it back. Storage is raft or postgresql, whose lock outlives a frozen holder
// for 15 s: then standbys say that there is no active server, soon.
func RunSecretsFreezes(ctx context.Context, l *faultrun.Lab, storage string, cfg Freezes, seed uint64) (*FreezesReport,
	error) {
	r, err := secretsruns.OpenSecrets(ctx, l, secretsruns.Secrets{Servers: 3, Storage: storage})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	report := &FreezesReport{}
	for round := range cfg.Rounds {
		active, err := r.Active(ctx)
		if err != nil {
			return report, r.Explain(err)
		}
		standbys := slices.DeleteFunc(slices.Clone(r.Servers), func(s *faultrun.Server) bool { return s == active })
		if err := frozenRound(ctx, r, cfg, active, standbys, report); err != nil {
			return report, r.Explain(fmt.Errorf("seed %d, round %d, %s: %w", seed, round, storage, err))
		}
	}
	for _, s := range r.Servers {
		err = errors.Join(err, s.Damage())
	}
	return report, err
}

func frozenRound(ctx context.Context, r *secretsruns.SecretsRun, cfg Freezes, active *faultrun.Server,
	standbys []*faultrun.Server,
	report *FreezesReport) error {
	load, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	var mu sync.Mutex // guards report
	errs := make([]error, len(standbys))
	for i, s := range standbys {
		clients.Go(func() {
			sent, acked := 0, 0
			for spawn.Sleep(load, 50*time.Millisecond) == nil && errs[i] == nil {
				for _, what := range []string{"write", "read"} {
					method, body := http.MethodGet, any(nil)
					if what == "write" {
						sent++
						method, body = http.MethodPut, map[string]any{"n": strconv.Itoa(sent)}
					}
					began := time.Now()
					code, _, err := r.Do(context.WithoutCancel(load), s, method, "secret/frozen-"+s.Name, r.Token, body)
					took := time.Since(began)
					if what == "write" && err == nil && code < 300 {
						acked = sent
					}
					mu.Lock()
					report.add(what, took, fmt.Sprintf("a %s through %s: status %d, %v", what, s.Name, code, err), err == nil &&
						code < 300)
					mu.Unlock()
					if took > cfg.Limit {
						errs[i] = fmt.Errorf("a %s through %s took %s: status %d, %w", what, s.Name, took, code, faultrun.OrNone(err))
						stop()
					}
				}
			}
			if acked == 0 && errs[i] == nil {
				errs[i] = fmt.Errorf("no write through %s was acknowledged", s.Name)
			}
		})
	}
	err := spawn.Sleep(load, time.Second) // everything is warm
	err = errors.Join(err, active.Freeze())
	_ = spawn.Sleep(load, cfg.Most)
	err = errors.Join(err, active.Thaw())
	_ = spawn.Sleep(load, 2*time.Second)
	stop()
	clients.Wait()
	return errors.Join(append(errs, err)...)
}

func (rep *FreezesReport) add(what string, took time.Duration, text string, acknowledged bool) {
	if what == "read" {
		rep.Reads++
	} else {
		rep.Writes++
		if !acknowledged {
			rep.Unknown++
		}
	}
	if took > rep.Slowest {
		rep.Slowest, rep.Slow = took, text
	}
}
