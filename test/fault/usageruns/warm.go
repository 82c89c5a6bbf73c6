package usageruns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"corbel.dev/corbel/kit/s3bucket/s3test"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Warm has servers lose what they have counted, and their logs, and begin from copies in S3 while events come.
type Warm struct {
	Cycles  int
	Senders int // default 3
}

// WarmReport tells what a run did.
type WarmReport struct {
	// Meanwhile are the events that were taken between the start of such a server and its being ready.
	Meanwhile int
	Report
}

// copied has servers save copies of their state in a bucket.
const copied = `usage { snapshots { every = "1s" s3 { bucket = "` + s3test.Bucket + `" endpoint = "http://%s"
	region = "eu-1" access_key = "id" secret_key = "secret" path_style = true } } }`

// RunWarm kills one server after the other, takes its folder of usage away, and starts it again, with a bucket that is
// slow half of the time. Afterwards every estimate is the model's.
func RunWarm(ctx context.Context, l *faultrun.Lab, cfg Warm, seed uint64) (report WarmReport, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return report, err
	}
	bucket := s3test.New()
	service := &http.Server{Handler: bucket, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- service.Serve(listener) }() // until it is closed
	defer func() {
		_ = service.Close() // whoever still reads is a server that has ended
		<-served
	}()
	c, err := l.Open(ctx, harness.Config{Servers: 3, HCL: []string{fmt.Sprintf(config, usual),
		fmt.Sprintf(copied, listener.Addr())}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	m := &model{events: map[string]event{}, report: &report.Report}
	if err := define(ctx, c); err != nil {
		return report, errors.Join(err, c.Damage())
	}
	group := m.senders(c, cmp.Or(cfg.Senders, 3), seed)
	defer group.close()
	for _, s := range group {
		s.keeps = true
	}
	r := rand.New(rand.NewPCG(seed, 31))
	for range cfg.Cycles {
		if err := report.warm(ctx, c, m, group, bucket, r); err != nil {
			return report, fmt.Errorf("cycle %d: %w\n%s", report.Cycles+1, errors.Join(err, c.Damage()), c.Logs())
		}
	}
	if err := m.judge(ctx, c); err != nil {
		return report, fmt.Errorf("after %d cycles: %w\n%s", report.Cycles, errors.Join(err, c.Damage()), c.Logs())
	}
	return report, c.Damage()
}

// warm is one cycle: load, the loss of a server's folder, and its start, with load all the while.
func (report *WarmReport) warm(ctx context.Context, c *faultrun.Cluster, m *model, group rollout,
	bucket *s3test.Service, r *rand.Rand,
) error {
	err := group.beside(ctx, func() error { return report.lose(ctx, c, m, bucket, r) })
	if err == nil {
		report.Cycles++
	}
	return err
}

func (report *WarmReport) lose(ctx context.Context, c *faultrun.Cluster, m *model, bucket *s3test.Service,
	r *rand.Rand,
) error {
	if err := home(ctx, c); err != nil {
		return err
	}
	if err := spawn.Sleep(ctx, 2*time.Second); err != nil { // copies in the bucket are made each second
		return err
	}
	bucket.Slow(time.Duration(r.IntN(2)) * 2 * time.Second)
	s := c.Servers[r.IntN(len(c.Servers))]
	s.Kill()
	if err := os.RemoveAll(filepath.Join(s.Dir, "usage")); err != nil {
		return err
	}
	if r.IntN(2) == 0 { // others take over first
		_ = spawn.Sleep(ctx, time.Duration(r.IntN(5000))*time.Millisecond)
	}
	reads, began, before := bucket.Reads(), time.Now(), m.taken()
	if err := s.Start(); err != nil {
		return err
	}
	if err := ready(ctx, c, s); err != nil {
		return err
	}
	report.Starts = append(report.Starts, time.Since(began))
	report.Meanwhile += m.taken() - before
	// One whose part others have taken over, with a copy, is ready before it has asked for anything: what it began from
	// is known when its part has come back.
	if err := home(ctx, c); err != nil {
		return err
	}
	switch {
	case bucket.Reads() == reads:
		return fmt.Errorf("%s began without a copy: nothing was read from the bucket", s.Name)
	case m.taken() == before:
		return fmt.Errorf("no event was taken until %s had its part again", s.Name)
	}
	return nil
}

// taken is how many events were acknowledged.
func (m *model) taken() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report.Events
}
