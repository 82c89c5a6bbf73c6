package monitorruns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	faultrun "corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/catalogruns"
)

// window is how far a replica may be behind its owner.
const window = time.Second

// emptied: a server is killed while all is quiet, its event store is gone, and it is back before anybody missed it.
// The replicas have everything.
func (r *faultsRun) emptied(ctx context.Context) error {
	return r.gone(ctx, func(s *faultrun.Server) string { return filepath.Join(s.Dir, "monitor", "events") }, false)
}

// wiped: a server is killed under results, and all of its disk is gone. What it had read more than the replicas'
// window before counts.
func (r *faultsRun) wiped(ctx context.Context) error {
	return r.gone(ctx, func(s *faultrun.Server) string { return s.Dir }, true)
}

func (r *faultsRun) gone(ctx context.Context, what func(*faultrun.Server) string, loaded bool) error {
	victim := r.Servers[r.rng.IntN(len(r.Servers))]
	// A server that was away for long, or whose whole disk was gone, is a new member of each plane's group, without a
	// vote until autopilot has seen it well for a while: the next disk that is lost by then is a lost quorum.
	if err := spawn.Until(ctx, 2*time.Minute, "groups that outlive a server",
		func() error { return catalogruns.Outlives(ctx, r.Cluster) }); err != nil {
		return err
	}
	before, err := r.events(ctx, r.Servers[0])
	if err != nil {
		return err
	}
	if loaded {
		r.load(mostRuns - 4)
		if err := spawn.Sleep(ctx, window+time.Duration(r.rng.IntN(300))*time.Millisecond); err != nil {
			return err
		}
		r.load(4) // these may be within the window
		if err := spawn.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	at := time.Now()
	victim.Kill()
	if err := os.RemoveAll(what(victim)); err != nil {
		return err
	}
	if err := victim.Start(); err != nil {
		return err
	}
	if err := errors.Join(r.together(ctx), r.idle(ctx), r.settled(ctx, 3*time.Minute)); err != nil {
		return err
	}
	for _, s := range r.Servers {
		if err := r.kept(ctx, s, before, at); err != nil {
			return fmt.Errorf("%s, after %s lost its disk: %w", s.Name, victim.Name, err)
		}
	}
	return r.whole(ctx)
}

// places tells who has the shard of an event.
func (r *faultsRun) places(ctx context.Context, key string) (out string) {
	entity, _, _ := strings.Cut(key, "/")
	for _, s := range r.Servers {
		shards, err := r.stored(ctx, s)
		out += fmt.Sprintf("%s: %+v %v; ", s.Name, shards[int(ingest.ShardOf("default", entity))], faultrun.OrNone(err))
	}
	return out
}

// kept compares what a server tells with what was told before, and what was sent since.
func (r *faultsRun) kept(ctx context.Context, s *faultrun.Server, before map[string]*monitor.Event,
	at time.Time) error {
	all, err := r.events(ctx, s)
	if err != nil {
		return err
	}
	for key := range before {
		if all[key] == nil {
			return fmt.Errorf("nothing is known of %s; %s", key, r.places(ctx, key))
		}
	}
	for _, a := range r.sensors {
		for _, one := range a.subjects {
			now, old := all[one.name+"/disk"], before[one.name+"/disk"]
			if len(one.sent) == 0 && !reflect.DeepEqual(now.Check, old.Check) {
				return fmt.Errorf("%s was %+v, and is %+v", one.name, old.Check, now.Check)
			}
			counted := map[int64]bool{}
			for _, run := range now.Check.History {
				counted[run.Executed] = true
			}
			for _, sent := range one.sent {
				if !sent.taken.IsZero() && at.Sub(sent.taken) > window && !counted[sent.number] {
					return fmt.Errorf("%s: run %d was read %s before the kill, and is lost", one.name, sent.number, at.Sub(sent.taken))
				}
			}
		}
	}
	return nil
}
