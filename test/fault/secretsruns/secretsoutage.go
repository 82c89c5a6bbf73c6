package secretsruns

import (
	"corbel.dev/corbel/test/fault/catalogruns"

	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/spawn"
	faultrun "corbel.dev/corbel/test/fault"
)

// Outage is B8 for the secrets plane on PostgreSQL: the database goes away under load and comes back.
type Outage struct {
	Servers int
	// Hung stops PostgreSQL in its tracks, with all connections open; else it ends and takes no connection.
	Hung bool
	// Restart kills the servers and starts them again while it is away.
	Restart bool
	For     time.Duration
	Clients int // 32
}

// OutageReport is what clients saw. Answers are counted by status; 0 is none within 20 s.
type OutageReport struct {
	Before, Meanwhile map[int]int
	// Slowest is the longest answer while PostgreSQL was away, Refused the median of those that were refused then.
	Slowest, Refused time.Duration
	// Recovered is from PostgreSQL's return to the first acknowledged write.
	Recovered time.Duration
	GrewBytes int64 // of the servers together
}

// outageAnswer is the longest that an answer may take meanwhile: the storage's time for a commit, and as much for
// what waited behind it.
const outageAnswer = 15 * time.Second

// RunOutage runs the scenario.
func RunOutage(ctx context.Context, l *faultrun.Lab, cfg Outage, seed uint64) (*OutageReport, error) {
	if cfg.Clients == 0 {
		cfg.Clients = 32
	}
	r, err := OpenSecrets(ctx, l, Secrets{Storage: "postgresql", Servers: cfg.Servers})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for i := range 100 {
		if err := r.must(ctx, "PUT", fmt.Sprintf("secret/r%d", i), map[string]any{"n": i}); err != nil {
			return nil, r.Explain(err)
		}
	}
	report, err := r.outage(ctx, cfg, rand.New(rand.NewPCG(seed, 0x0a7)))
	if err != nil {
		return report, r.Explain(err)
	}
	return report, nil
}

// seen is what clients saw in one part of a run.
type seen struct {
	mu      sync.Mutex // guards what follows
	by      map[int]int
	slowest time.Duration
	refused []time.Duration
	wrong   error
}

func (s *seen) add(code int, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[code]++
	s.slowest = max(s.slowest, took)
	if code == http.StatusServiceUnavailable {
		s.refused = append(s.refused, took)
	}
	s.wrong = errors.Join(s.wrong, err)
}

func (r *SecretsRun) outage(ctx context.Context, cfg Outage, rng *rand.Rand) (*OutageReport, error) {
	report := &OutageReport{}
	rss := func() (sum int64) {
		for _, s := range r.Servers {
			sum += s.RSS()
		}
		return sum
	}
	before, err := r.ask(ctx, cfg, time.Second, rng)
	if err != nil {
		return report, err
	}
	report.Before = before.by
	base := rss()
	if cfg.Hung {
		err = r.pg.Freeze()
	} else {
		r.pg.Stop(syscall.SIGQUIT)
	}
	if err != nil {
		return report, err
	}
	if cfg.Restart {
		if err := r.restartWithout(ctx); err != nil {
			return report, err
		}
		base = rss()
	}
	meanwhile, err := r.ask(ctx, cfg, cfg.For, rng)
	if err != nil {
		return report, err
	}
	report.Meanwhile, report.Slowest, report.GrewBytes = meanwhile.by, meanwhile.slowest, rss()-base
	report.Refused = catalogruns.Quantile(meanwhile.refused, 0.5)
	if cfg.Hung {
		err = r.pg.Thaw()
	} else {
		err = r.pg.Start()
	}
	if err != nil {
		return report, err
	}
	began := time.Now()
	if err := r.progress(ctx, nil); err != nil {
		return report, err
	}
	report.Recovered = time.Since(began)
	switch {
	case meanwhile.wrong != nil:
		return report, meanwhile.wrong
	case report.Slowest > outageAnswer:
		return report, fmt.Errorf("an answer took %s while PostgreSQL was away: %+v", report.Slowest, report)
	case report.GrewBytes > 64<<20*int64(len(r.Servers)):
		return report, fmt.Errorf("the servers grew by %d bytes while PostgreSQL was away", report.GrewBytes)
	case report.Meanwhile[http.StatusServiceUnavailable] == 0:
		return report, fmt.Errorf("nothing was refused with 503: %+v", report)
	}
	return report, nil
}

// restartWithout starts the servers anew while their storage is away: they come up, say so, and stay.
func (r *SecretsRun) restartWithout(ctx context.Context) error {
	for _, s := range r.Servers {
		s.Kill()
		if err := s.Start(); err != nil {
			return err
		}
	}
	for _, s := range r.Servers {
		if err := spawn.Until(ctx, time.Minute, s.Name+" to come up without its storage", func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+"/v1/sys/health", nil)
			if err != nil {
				return err
			}
			resp, err := r.client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
				!strings.Contains(string(body), "cannot be reached") {
				return fmt.Errorf("its health is %d, %s, %w", resp.StatusCode, body, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// ask lets clients write and read for a time and waits for their last answers.
func (r *SecretsRun) ask(ctx context.Context, cfg Outage, during time.Duration, rng *rand.Rand) (*seen, error) {
	out := &seen{by: map[int]int{}}
	asking, stop := context.WithTimeout(ctx, during)
	defer stop()
	var clients sync.WaitGroup
	for c := range cfg.Clients {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(c)))
		clients.Go(func() {
			for asking.Err() == nil {
				r.askOnce(ctx, out, rng)
			}
		})
	}
	clients.Wait()
	return out, ctx.Err()
}

func (r *SecretsRun) askOnce(ctx context.Context, out *seen, rng *rand.Rand) {
	s := r.Servers[rng.IntN(len(r.Servers))]
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/v1/secret/r%d", s.HTTP,
		rng.IntN(100)), nil)
	if rng.IntN(2) == 0 {
		req, err = http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("http://%s/v1/secret/w%d", s.HTTP,
			rng.IntN(100)), strings.NewReader(`{"n":1}`))
	}
	if err != nil {
		out.add(0, 0, err)
		return
	}
	req.Header.Set("X-Vault-Token", r.Token)
	began := time.Now()
	resp, err := r.client.Do(req)
	if err != nil {
		out.add(0, time.Since(began), nil)
		return
	}
	_ = resp.Body.Close()
	took := time.Since(began)
	switch resp.StatusCode {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		after, bad := strconv.Atoi(resp.Header.Get("Retry-After"))
		if bad != nil || after < 1 {
			out.add(resp.StatusCode, took, fmt.Errorf("a refusal says Retry-After %q", resp.Header.Get("Retry-After")))
			return
		}
		_ = spawn.Sleep(ctx, 20*time.Millisecond) // a patient client would wait that second
	case http.StatusOK, http.StatusNoContent, http.StatusInternalServerError, http.StatusBadGateway:
		// the last two: it may have been done
	default:
		out.add(resp.StatusCode, took, fmt.Errorf("status %d", resp.StatusCode))
		return
	}
	out.add(resp.StatusCode, took, nil)
}
