package monitorruns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/monitor/shards"
	"corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/catalogruns"
)

// herd: three of ten agents lose their sessions in one instant, and come back in the same.
func (r *faultsRun) herd(ctx context.Context) error {
	return r.under(ctx, func() error {
		for _, a := range r.bystanders[:len(r.bystanders)*3/10] {
			a.mu.Lock()
			if a.link != nil {
				_ = a.link.Close()
			}
			a.mu.Unlock()
		}
		return nil
	}, func() error { return r.together(ctx) })
}

// lasting is longer than an agent may be silent, and than the spread of alarms after a takeover.
func (b beats) lasting() time.Duration { return time.Duration(b.miss+2*b.every) * time.Second }

// killed: one server dies and stays away for longer than an agent may be silent. Its agents are elsewhere meanwhile;
// its shards too.
func (r *faultsRun) killed(ctx context.Context) error {
	victim := r.Servers[1+r.rng.IntN(len(r.Servers)-1)]
	for _, a := range append(r.bystanders, r.sensors...) {
		a.mu.Lock()
		a.back = nil
		a.mu.Unlock()
	}
	at := time.Now()
	victim.Kill()
	if err := r.together(ctx); err != nil {
		return err
	}
	for _, a := range append(r.bystanders, r.sensors...) {
		a.mu.Lock()
		for _, took := range a.back {
			if r.report.Back = append(r.report.Back, took); r.cfg.Back > 0 && took > r.cfg.Back {
				a.mu.Unlock()
				return fmt.Errorf("%s was without a session for %s after its server was killed", a.name, took)
			}
		}
		a.mu.Unlock()
	}
	r.load(mostRuns) // results that the victim alone had read are lost with it; those of now are not
	if err := r.idle(ctx); err != nil {
		return err
	}
	if err := spawn.Sleep(ctx, r.beats.lasting()-time.Since(at)); err != nil {
		return err
	}
	if err := r.nobodyMissed(ctx); err != nil {
		return err
	}
	if err := victim.Start(); err != nil {
		return err
	}
	return r.whole(ctx)
}

// rolling: one server after the other is stopped in order, and started again when it ended. Nothing that was read is
// lost.
func (r *faultsRun) rolling(ctx context.Context) error {
	for _, s := range r.Servers {
		stop := make(chan error, 1)
		r.load(mostRuns / 3)
		go func() { stop <- s.Stop() }()
		_ = spawn.Sleep(ctx, 50*time.Millisecond) // while it goes
		r.load(mostRuns / 3)
		if err := errors.Join(<-stop, s.Start()); err != nil {
			return err
		}
		r.load(mostRuns / 3)
		if err := errors.Join(r.idle(ctx), r.settled(ctx, 2*time.Minute), r.allCount(ctx), r.whole(ctx)); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// restart: all servers die together and come back; who lives is not missed, also when the first time is up.
func (r *faultsRun) restart(ctx context.Context) error {
	for _, s := range r.Servers {
		s.Kill()
	}
	if err := r.Start(); err != nil {
		return err
	}
	if err := r.whole(ctx); err != nil {
		return err
	}
	if err := spawn.Sleep(ctx, r.beats.lasting()); err != nil {
		return err
	}
	return r.nobodyMissed(ctx)
}

// clocks: the wall clock of one server, then of all, jumps by an hour, forth and back. Nobody is missed, no shard
// moves, and a check that is due each second is asked for neither in a burst nor with a pause.
func (r *faultsRun) clocks(ctx context.Context) error {
	clerk := r.sensors[0]
	check := fmt.Sprintf(`{"metadata":{"name":"tick","namespace":"default"},"command":"true","interval":1,`+
		`"publish":true,"handlers":[],"subscriptions":["entity:%s"]}`, clerk.name)
	if err := r.put(ctx, "checks/tick", check); err != nil {
		return err
	}
	before, err := r.sum(ctx, "sensu_go_shards_taken_over")
	if err != nil {
		return err
	}
	one := r.Servers[r.rng.IntN(3)]
	for _, jump := range []struct {
		of []*faultrun.Server
		by time.Duration
	}{{[]*faultrun.Server{one}, time.Hour}, {r.Servers, time.Hour}, {r.Servers, -time.Hour}, {r.Servers, 0}} {
		if err := r.jump(ctx, clerk, jump.of, jump.by); err != nil {
			return fmt.Errorf("the clock of %d servers is set to %s: %w", len(jump.of), jump.by, err)
		}
	}
	after, err := r.sum(ctx, "sensu_go_shards_taken_over")
	if err == nil && after != before {
		err = fmt.Errorf("%v shards moved", after-before)
	}
	_, _, gone := r.clients[r.Servers[0]].Do(ctx, "DELETE", "/api/core/v2/namespaces/default/checks/tick", nil, nil)
	return errors.Join(err, gone)
}

func (r *faultsRun) jump(ctx context.Context, clerk *sensor, of []*faultrun.Server, by time.Duration) error {
	asked := func() int {
		clerk.mu.Lock()
		defer clerk.mu.Unlock()
		return clerk.asked
	}
	begin, first := time.Now(), asked()
	err := r.under(ctx, func() error {
		for _, s := range of {
			if err := s.Control.SetClock(ctx, by, 1); err != nil {
				return err
			}
		}
		return nil
	}, func() error { return nil })
	if err != nil {
		return err
	}
	if err := spawn.Until(ctx, 30*time.Second, "the check to be asked for", func() error {
		if asked() < first+2 {
			return errors.New("it is not")
		}
		return nil
	}); err != nil {
		return err
	}
	if n, most := asked()-first, int(time.Since(begin)/time.Second)+3; n > most {
		return fmt.Errorf("a check that is due each second was asked for %d times in %s", n, time.Since(begin))
	}
	return nil
}

// put creates an object of the default namespace.
func (r *faultsRun) put(ctx context.Context, path, body string) error {
	_, _, err := r.clients[r.Servers[0]].Do(ctx, "PUT", "/api/core/v2/namespaces/default/"+path, nil, []byte(body))
	return err
}

// onDisk lets a fault of one server's event store last while results come.
func (r *faultsRun) onDisk(ctx context.Context, rule fault.Command, meanwhile func(*faultrun.Server) error) error {
	s := r.Servers[r.rng.IntN(3)]
	rule.Name, rule.Glob = "events", filepath.Join(s.Dir, "monitor", "events")+"/**"
	return r.under(ctx, func() error { return s.Control.Disk(ctx, rule) },
		func() error { return errors.Join(meanwhile(s), s.Control.Clear(ctx)) })
}

// slowDisk: each operation takes 200 ms. The catalog of the same server takes writes all the same.
func (r *faultsRun) slowDisk(ctx context.Context) error {
	return r.onDisk(ctx, fault.Command{Ops: "write,sync", Delay: 200 * time.Millisecond}, r.catalogWrites)
}

// fullDisk: nothing can be written, and the log says so.
func (r *faultsRun) fullDisk(ctx context.Context) error {
	return r.onDisk(ctx, fault.Command{Ops: "write,preallocate,open", Error: "ENOSPC"}, func(s *faultrun.Server) error {
		return errors.Join(r.catalogWrites(s), spawn.Until(ctx, 30*time.Second, "the full disk in the log of "+s.Name,
			func() error {
				if !strings.Contains(s.Log(), "cannot store events") {
					return errors.New("it is not there")
				}
				return nil
			}))
	})
}

// hungDisk: nothing comes back. What the server has goes to others in order, and comes back when the disk answers.
func (r *faultsRun) hungDisk(ctx context.Context) error {
	s := r.Servers[r.rng.IntN(3)]
	part := float64(shards.Count / len(r.Servers))
	counted := func() error {
		r.load(mostRuns / 3) // by way of the server that stores nothing, too
		return errors.Join(r.idle(ctx), r.allCount(ctx))
	}
	owns := func(what string, right func(float64) bool) error {
		return spawn.Until(ctx, 2*time.Minute, what, func() error {
			owned, err := r.figure(ctx, s, "sensu_go_shards_owned")
			if err == nil && !right(owned) {
				err = fmt.Errorf("%s has %v shards", s.Name, owned)
			}
			return err
		})
	}
	if err := r.settled(ctx, 2*time.Minute); err != nil {
		return err
	}
	began := time.Now()
	rule := fault.Command{Name: "events", Glob: filepath.Join(s.Dir, "monitor", "events") + "/**", Ops: "write,sync",
		Stall: true}
	if err := s.Control.Disk(ctx, rule); err != nil {
		return err
	}
	err := errors.Join(counted(), owns("others to have its shards", func(n float64) bool { return n == 0 }))
	r.report.Moved = time.Since(began)
	if err == nil {
		err = errors.Join(counted(), r.catalogWrites(s))
	}
	if err = errors.Join(err, s.Control.Clear(ctx)); err != nil {
		return err
	}
	if err := errors.Join(owns("its part again", func(n float64) bool { return n >= part }), counted()); err != nil {
		return err
	}
	return r.whole(ctx)
}

func (r *faultsRun) catalogWrites(s *faultrun.Server) error {
	c := faultrun.NewClient(s.HTTP)
	defer c.Close()
	for i := range 20 {
		if answer := c.Do(context.Background(), "PUT", "/v1/kv/beside", fmt.Append(nil, i)); answer.Status != 200 {
			return fmt.Errorf("the catalog beside a broken event store: %s", answer)
		}
	}
	return nil
}

// handlers: one that never returns, a sink that takes nothing and a filter that loops; another handler of the same
// events gets all of them.
func (r *faultsRun) handlers(ctx context.Context) error {
	sink, closeSink, err := catalogruns.Stalling("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer closeSink()
	_, port, _ := strings.Cut(sink, ":")
	dir, err := os.MkdirTemp(os.TempDir(), "handled")
	if err != nil {
		return err
	}
	for path, body := range map[string]string{
		"handlers/hangs": `{"metadata":{"name":"hangs","namespace":"default"},"type":"pipe","command":"sleep 1000"}`,
		"handlers/stalls": fmt.Sprintf(`{"metadata":{"name":"stalls","namespace":"default"},"type":"tcp",`+
			`"mutator":"large","socket":{"host":"127.0.0.1","port":%s}}`, port),
		"mutators/large": `{"metadata":{"name":"large","namespace":"default"},"type":"javascript","eval":"var s = ` +
			`'xxxxxxxxxxxxxxxx'; while (s.length < 1 << 25) s += s; return s","timeout":30}`,
		"filters/endless": `{"metadata":{"name":"endless","namespace":"default"},"action":"allow",` +
			`"expressions":["(function(){ while (true); })()"]}`,
		"handlers/loops": `{"metadata":{"name":"loops","namespace":"default"},"type":"pipe","command":"true",` +
			`"filters":["endless"]}`,
		"handlers/good": fmt.Sprintf(`{"metadata":{"name":"good","namespace":"default"},"type":"pipe","command":"cat > `+
			`/dev/null; echo >> %s/$$"}`, dir),
	} {
		if err := r.put(ctx, path, body); err != nil {
			return err
		}
	}
	for _, s := range r.Servers { // whoever has the events is to know all of them
		if err := spawn.Until(ctx, time.Minute, s.Name+" to know the handlers", func() error {
			body, err := r.get(ctx, s, "/metrics")
			for _, name := range []string{"hangs", "stalls", "loops", "good"} {
				if err == nil && !strings.Contains(string(body), `handler="`+name+`"`) {
					err = fmt.Errorf("it does not know %s", name)
				}
			}
			return err
		}); err != nil {
			return err
		}
	}
	const events = 60
	return r.under(ctx, func() error {
		c, err := dialAgent(ctx, r.Servers[0], "handled", "")
		if err != nil {
			return err
		}
		defer c.Close()
		for n := range int64(events) {
			e := r.sensors[0].result("handled", n+1, 2)
			e.Check.Handlers = []string{"hangs", "stalls", "loops", "good"}
			if err := errors.Join(sendEvent(c, "event", e), c.Flush()); err != nil {
				return err
			}
		}
		return spawn.Until(ctx, time.Minute, "the good handler to have everything", func() error {
			done, err := r.sum(ctx, "sensu_go_handler_events", `handler="good"`, `result="done"`)
			if err == nil && done != events {
				err = fmt.Errorf("it has %v of %d", done, events)
			}
			return err
		})
	}, func() error {
		busy, err := r.sum(ctx, "sensu_go_handler_busy", `handler="hangs"`)
		if err == nil && busy == 0 {
			err = errors.New("the handler that hangs is not at work")
		}
		return err
	})
}
