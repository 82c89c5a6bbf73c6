package usageruns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Faults is a history of three servers that all kinds of faults are done to, one after the other.
type Faults struct {
	Duration time.Duration
	Senders  int                  // default 3
	Kinds    []faultrun.FaultKind // default: all that a log and its copies are to bear
}

// faultKinds are what a nemesis does. A clock that jumps is left out: whether an event is late is for the clock of the
// servers to say, and the model has another one.
var faultKinds = []faultrun.FaultKind{faultrun.FaultKill, faultrun.FaultKillAll, faultrun.FaultFreeze,
	faultrun.FaultPartition, faultrun.FaultOneWay, faultrun.FaultSkew, faultrun.FaultSlowDisk, faultrun.FaultFullDisk,
	faultrun.FaultBadDisk, faultrun.FaultStallDisk, faultrun.FaultTransfer}

// FaultsReport tells what a run did.
type FaultsReport struct {
	Faults map[faultrun.FaultKind]int
	Report
}

// RunFaults sends events while servers are killed, frozen and cut off, and their disks are full, broken, slow or hang.
// Afterwards every estimate is the model's.
func RunFaults(ctx context.Context, l *faultrun.Lab, cfg Faults, seed uint64) (report FaultsReport, err error) {
	if cfg.Senders == 0 {
		cfg.Senders = 3
	}
	if len(cfg.Kinds) == 0 {
		cfg.Kinds = faultKinds
	}
	c, err := l.Open(ctx, harness.Config{Servers: 3, HCL: []string{fmt.Sprintf(config, usual)}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	m := &model{events: map[string]event{}, report: &report.Report}
	if err := define(ctx, c); err != nil {
		return report, errors.Join(err, c.Damage())
	}
	group := m.senders(c, cfg.Senders, seed)
	defer group.close()
	n := &faultrun.Nemesis{C: c, Rng: rand.New(rand.NewPCG(seed, 47)), Kinds: cfg.Kinds, Begin: time.Now()}
	err = group.beside(ctx, func() error {
		within, cancel := context.WithTimeout(ctx, cfg.Duration)
		defer cancel()
		return n.Run(within)
	})
	report.Faults = n.Done
	if err == nil {
		err = m.judge(ctx, c)
	}
	if err == nil && (report.Events == 0 || len(n.Done) == 0) {
		err = fmt.Errorf("%d events were taken, and %d kinds of faults done: nothing was tested", report.Events, len(n.Done))
	}
	if err = errors.Join(err, c.Damage()); err != nil {
		err = fmt.Errorf("%w\n%s\n%s", err, strings.Join(n.Log, "\n"), c.Logs())
	}
	return report, err
}

// beside has all send while f runs, and each end what it has begun.
func (group rollout) beside(ctx context.Context, f func() error) error {
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	failed := make([]error, len(group))
	for i, s := range group {
		wg.Go(func() { failed[i] = s.run(ctx, until) })
	}
	err := f()
	cancel()
	wg.Wait()
	return errors.Join(append(failed, err)...)
}
