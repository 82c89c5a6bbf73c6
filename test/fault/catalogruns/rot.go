package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// RotReport tells what a run did.
type RotReport struct {
	Flips int
	// Files counts the flips by the kind of file.
	Files map[string]int
	// Refused members did not start with the damage and named the file: an operator had to replace them.
	Refused int
	// Healed are the times from the start of the damaged member until it had everything.
	Healed []time.Duration
}

// RunRot is A6 for whole servers: again and again one of three is killed under load, a bit of one
// of its files is inverted, and it is started again. It heals by itself, or refuses to start and
// says which file it is; it never serves the damage, and the others lose nothing.
func RunRot(ctx context.Context, l *faultrun.Lab, flips int, seed uint64) (report RotReport, err error) {
	report.Files = map[string]int{}
	c, book, load, err := loaded(ctx, l, harness.Config{Servers: 3, HCL: []string{faultrun.LinearHCL, faultrun.StableHCL,
		snapshotHCL}}, seed)
	if err != nil {
		return report, err
	}
	defer c.Close()
	defer load.Close()
	rng := rand.New(rand.NewPCG(seed, 6))
	for range flips {
		if err := rotOnce(ctx, c, rng, load, book, &report); err != nil {
			return report, fmt.Errorf("%w\n%s", err, c.Logs())
		}
		report.Flips++
	}
	return report, c.Damage()
}

func rotOnce(ctx context.Context, c *faultrun.Cluster, rng *rand.Rand, load *faultrun.Writers, book *faultrun.Ledger,
	report *RotReport) error {
	if err := spawn.Until(ctx, 60*time.Second, "three voters", func() error { return c.Voters(ctx, 3) }); err != nil {
		return err
	}
	load.Start(ctx)
	_ = spawn.Sleep(ctx, 300*time.Millisecond)
	victim := c.Servers[rng.IntN(3)]
	victim.Kill()
	load.Stop()
	path, at, err := flipIn(victim.Dir, rng)
	if err != nil {
		return err
	}
	report.Files[kindOf(path)]++
	begin := time.Now()
	if err := victim.Start(); err != nil {
		return err
	}
	err = catchesUp(ctx, c, victim)
	where := fmt.Sprintf("a bit at %d of %s inverted", at, path)
	if !victim.Running() {
		if !strings.Contains(victim.Log(), filepath.Base(path)) {
			return fmt.Errorf("%s: the server ended and does not name the file", where)
		}
		report.Refused++
		err = replace(ctx, c, victim)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	report.Healed = append(report.Healed, time.Since(begin))
	if err := errors.Join(c.Converged(ctx, harness.StartLimit), c.Audit(ctx, book), c.Damage()); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

var errEnded = errors.New("it ended")

// catchesUp waits until a member has a value that is written now, or has ended.
func catchesUp(ctx context.Context, c *faultrun.Cluster, s *faultrun.Server) error {
	value := fmt.Sprint(time.Now().UnixNano())
	written := false
	return spawn.Until(ctx, harness.StartLimit, s.Name+" to catch up", func() error {
		if !s.Running() {
			return spawn.Hopeless(errEnded)
		}
		if !written {
			r := c.Admin.At(c.Followers(s)[0].HTTP).Do(ctx, "PUT", "/v1/kv/rot", []byte(value))
			if r.Status != http.StatusOK {
				return errors.New(r.String())
			}
			written = true
		}
		if r := c.Admin.At(s.HTTP).Do(ctx, "GET", "/v1/kv/rot?raw&stale", nil); string(r.Body) != value {
			return errors.New(r.String())
		}
		return nil
	})
}

// replace does what the operator of a member that refuses to start is told to do.
func replace(ctx context.Context, c *faultrun.Cluster, victim *faultrun.Server) error {
	if err := removePeer(ctx, c, victim); err != nil {
		return err
	}
	if err := os.RemoveAll(victim.Dir); err != nil {
		return err
	}
	if err := victim.Start(); err != nil {
		return err
	}
	return catchesUp(ctx, c, victim)
}

// flipIn inverts one bit of one file below dir, in the part of it that was written.
func flipIn(dir string, rng *rand.Rand) (path string, at int, err error) {
	var files []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.Contains(path, ".damaged") {
			if info, err := d.Info(); err == nil && info.Size() > 0 {
				files = append(files, path)
			}
		}
		return err
	})
	if err != nil || len(files) == 0 {
		return "", 0, errors.Join(err, errors.New("nothing to damage"))
	}
	path = files[rng.IntN(len(files))]
	data, err := os.ReadFile(path)
	if err != nil {
		return "", 0, err
	}
	end := len(data)
	for end > 1 && data[end-1] == 0 { // what is preallocated was never written
		end--
	}
	at = rng.IntN(end)
	data[at] ^= 1 << rng.IntN(8)
	return path, at, os.WriteFile(path, data, 0o600)
}

// kindOf names a file without what differs from one to the next.
func kindOf(path string) string {
	base := filepath.Base(path)
	for _, end := range []string{".seg", ".state", ".meta"} {
		if strings.HasSuffix(base, end) {
			return end
		}
	}
	return base
}
