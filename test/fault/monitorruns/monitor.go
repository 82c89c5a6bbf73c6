// Package monitorruns has the scenarios of the monitor plane: crashes, broken disks, hostile agents, outages.
package monitorruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/client/sensu"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	faultrun "corbel.dev/corbel/test/fault"
)

// monitorRun is a cluster with the monitor plane, agents with sessions, and what is known of their subjects.
type monitorRun struct {
	*faultrun.Cluster
	sensors  []*sensor
	clients  map[*faultrun.Server]*sensu.Client
	http     *http.Client
	stopping context.CancelFunc
	running  sync.WaitGroup
	before   map[string]*monitor.Event // by subject, when all was quiet
}

// shardState is a shard as a server tells of it.
type shardState struct {
	Shard           int
	Role            string
	Epoch, Sequence uint64
}

// openMonitor makes a cluster, and agents of so many subjects each, no two subjects in one shard.
func openMonitor(ctx context.Context, l *faultrun.Lab, shape harness.Config, agents, subjects int, b beats,
	seed uint64) (*monitorRun, error) {
	shape.Monitor, shape.HCL = true, append([]string{faultrun.MonitorHCL}, shape.HCL...)
	c, err := l.Open(ctx, shape)
	if err != nil {
		return nil, err
	}
	r := &monitorRun{Cluster: c, clients: map[*faultrun.Server]*sensu.Client{},
		http: &http.Client{Timeout: 10 * time.Second}}
	for _, s := range c.Servers {
		if r.clients[s], err = sensu.New(sensu.Config{Address: s.Monitor, User: "admin", Password: "P@ssw0rd!",
			Timeout: 10 * time.Second}); err != nil {
			r.close()
			return nil, err
		}
	}
	if err := r.settled(ctx, 2*time.Minute); err != nil {
		r.close()
		return nil, err
	}
	used := map[uint16]bool{}
	name := func(kind string) string {
		for n := 0; ; n++ {
			s := fmt.Sprintf("%s-%d", kind, n)
			if shard := ingest.ShardOf("default", s); !used[shard] {
				used[shard] = true
				return s
			}
		}
	}
	running, stop := context.WithCancel(ctx)
	r.stopping = stop
	for i := range agents {
		a := &sensor{name: name("agent"), servers: c.Servers, beats: b, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		for range subjects {
			a.subjects = append(a.subjects, &subject{name: name("host"), next: time.Now().Unix() - 100_000})
		}
		r.sensors = append(r.sensors, a)
		r.running.Go(func() { a.run(running) })
	}
	r.load(3) // every subject is known, so that each result is one change of its shard
	err = r.remember(ctx)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, r.Logs())
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *monitorRun) close() {
	if r.stopping != nil {
		r.stopping()
	}
	r.Close()
	r.running.Wait()
	for _, c := range r.clients {
		c.Close()
	}
	r.http.CloseIdleConnections()
}

func (r *monitorRun) load(n int) {
	for _, a := range r.sensors {
		a.load(n)
	}
}

// idle ends the load and waits until agents have sessions, and servers have read what was sent.
func (r *monitorRun) idle(ctx context.Context) error {
	return spawn.Until(ctx, 2*time.Minute, "the agents to be idle", func() error {
		for _, a := range r.sensors {
			a.mu.Lock()
			left := a.left
			a.mu.Unlock()
			if left > 0 {
				return fmt.Errorf("%s has %d to send", a.name, left)
			}
			if err := a.quiet(); err != nil {
				return err
			}
		}
		return nil
	})
}

// remember waits for quiet and keeps what is known of each subject.
func (r *monitorRun) remember(ctx context.Context) error {
	if err := r.idle(ctx); err != nil {
		return err
	}
	if err := r.settled(ctx, 2*time.Minute); err != nil {
		return err
	}
	r.before = map[string]*monitor.Event{}
	for _, a := range r.sensors {
		for _, s := range a.subjects {
			a.mu.Lock()
			s.sent = nil
			a.mu.Unlock()
		}
	}
	all, err := r.events(ctx, r.Servers[0])
	if err != nil {
		return err
	}
	for _, a := range r.sensors {
		for _, s := range a.subjects {
			if r.before[s.name] = all[s.name+"/disk"]; r.before[s.name] == nil {
				return fmt.Errorf("nothing is known of %s", s.name)
			}
		}
	}
	return nil
}

// get reads a page that needs no login.
func (r *monitorRun) get(ctx context.Context, s *faultrun.Server, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.Monitor+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: status %d, %s", s.Name, path, resp.StatusCode, body)
	}
	return body, err
}

// stored reads what is durable at a server.
func (r *monitorRun) stored(ctx context.Context, s *faultrun.Server) (map[int]shardState, error) {
	body, err := r.get(ctx, s, "/api/corbel/v1/events/stored")
	if err != nil {
		return nil, err
	}
	var got struct{ Shards []shardState }
	if err := json.Unmarshal(body, &got); err != nil {
		return nil, err
	}
	out := map[int]shardState{}
	for _, one := range got.Shards {
		out[one.Shard] = one
	}
	return out, nil
}

// waiting are the counts that are zero when nothing is on its way.
var waiting = []string{"sensu_go_events_pending_bytes", "sensu_go_events_forward_pending_bytes",
	"sensu_go_replica_pending_bytes", "sensu_go_shards_behind"}

// settled waits until each shard has one owner and a replica that has everything, and nothing is on its way.
func (r *monitorRun) settled(ctx context.Context, limit time.Duration) error {
	return spawn.Until(ctx, limit, "the shards to settle", func() error {
		owned := map[int]*faultrun.Server{}
		for _, s := range r.Servers {
			if _, err := r.get(ctx, s, "/ready"); err != nil {
				return err
			}
			body, err := r.get(ctx, s, "/metrics")
			if err != nil {
				return err
			}
			for _, name := range waiting {
				if name == "sensu_go_shards_behind" && len(r.Servers) == 1 {
					continue
				}
				if n := metricOf(string(body), name); n != 0 {
					return fmt.Errorf("%s: %s is %v", s.Name, name, n)
				}
			}
			shards, err := r.stored(ctx, s)
			if err != nil {
				return err
			}
			for n, one := range shards {
				if one.Role != "owner" {
					continue
				}
				if owned[n] != nil {
					return fmt.Errorf("%s and %s own shard %d", owned[n].Name, s.Name, n)
				}
				owned[n] = s
			}
		}
		if len(owned) != ingest.Shards {
			return fmt.Errorf("%d shards have an owner", len(owned))
		}
		return nil
	})
}

// metricOf reads a gauge without labels, -1 where it is not there.
func metricOf(text, name string) float64 {
	for line := range strings.SplitSeq(text, "\n") {
		var n float64
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return n
			}
		}
	}
	return -1
}

// events reads all events at a server, by entity and check.
func (r *monitorRun) events(ctx context.Context, s *faultrun.Server) (map[string]*monitor.Event, error) {
	out := map[string]*monitor.Event{}
	for raw, err := range r.clients[s].List(ctx, "/api/core/v2/namespaces/default/events", nil) {
		if err != nil {
			return nil, err
		}
		e := new(monitor.Event)
		if err := json.Unmarshal(raw, e); err != nil {
			return nil, err
		}
		if e.Entity == nil || e.Check == nil {
			return nil, errors.New("an event without entity or check")
		}
		out[e.Entity.Name+"/"+e.Check.Name] = e
	}
	return out, nil
}

// noAlarm says that no agent of the run was ever missed, as far as histories reach.
func (r *monitorRun) noAlarm(all map[string]*monitor.Event) error {
	for _, a := range r.sensors {
		e := all[a.name+"/keepalive"]
		if e == nil {
			return fmt.Errorf("%s lives, and has no keepalive", a.name)
		}
		for _, run := range e.Check.History {
			if run.Status != 0 {
				return fmt.Errorf("a false alarm: %s lives, and its keepalive has the history %v (%s)", a.name, e.Check.History,
					e.Check.Output)
			}
		}
	}
	return nil
}
