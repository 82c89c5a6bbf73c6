package monitorload

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/agents"
	"corbel.dev/corbel/client/sensu"
)

const sampleHandler = "bench-sink"

func (p *Plane) client(i int) (*sensu.Client, error) {
	return sensu.New(sensu.Config{Address: p.apis[i], User: p.o.User, Password: p.o.Password})
}

// put makes objects over the API, as people would.
func (p *Plane) put(ctx context.Context, path string, object any) error {
	c, err := p.client(0)
	if err != nil {
		return err
	}
	defer c.Close()
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, _, err = c.Do(ctx, "PUT", "/api/core/v2/"+path, nil, body)
	return err
}

// Prepare makes the sample's namespace and handler, and begins to follow.
func (p *Plane) Prepare(ctx context.Context) error {
	var err error
	if p.Follow, err = newFollowers(); err != nil {
		return err
	}
	if err := p.put(ctx, "namespaces/"+agents.SampleNamespace,
		map[string]any{"name": agents.SampleNamespace}); err != nil {
		return fmt.Errorf("the sample's namespace: %w", err)
	}
	host, port := p.Follow.address()
	err = p.put(ctx, "namespaces/"+agents.SampleNamespace+"/handlers/"+sampleHandler, map[string]any{
		"metadata": map[string]any{"name": sampleHandler, "namespace": agents.SampleNamespace}, "type": "tcp", "timeout": 10,
		"socket": map[string]any{"host": host, "port": port}})
	if err != nil {
		return fmt.Errorf("the sample's handler: %w", err)
	}
	for i := range p.apis {
		c, err := p.client(i)
		if err != nil {
			return err
		}
		p.Follow.watch(c)
	}
	return nil
}

// Checks makes the checks, each for one of the subscriptions. A flood is of checks that nobody asks for; its sample's
// are asked for each second.
func (p *Plane) Checks(ctx context.Context) error {
	for i := range p.o.Checks {
		for _, ns := range []string{"default", agents.SampleNamespace} {
			interval, handlers := p.o.Interval, []string{}
			if ns == agents.SampleNamespace {
				handlers = append(handlers, sampleHandler)
			} else if p.o.flood {
				continue
			}
			name := agents.CheckName(i)
			err := p.put(ctx, "namespaces/"+ns+"/checks/"+name,
				map[string]any{"metadata": map[string]any{"name": name, "namespace": ns}, "command": agents.CheckCommand,
					"interval": interval, "publish": true, "timeout": 10, "handlers": handlers,
					"subscriptions": []string{agents.Subscription(i, p.o.Subscriptions)}})
			if err != nil {
				return fmt.Errorf("check %s: %w", name, err)
			}
		}
	}
	return nil
}

// Play starts the processes that play the agents.
func (p *Plane) Play(ctx context.Context) error {
	o := p.o
	processes := (o.Agents + o.PerProcess - 1) / o.PerProcess
	for first := 0; first < o.Agents; first += o.PerProcess {
		c, err := bench.StartChild(o.Binary, p.dir, "play-agents")
		if err != nil {
			return err
		}
		p.players = append(p.players, c)
		cfg := agents.Config{Targets: p.doors, First: first, Count: min(o.PerProcess, o.Agents-first), Sampled: o.Sample,
			Checks: o.Checks, Subscriptions: o.Subscriptions,
			Interval: o.Interval, Keepalive: o.Keepalive, Rate: (o.Ramp + processes - 1) / processes, User: o.AgentUser,
			Password: o.AgentPassword, SampleHandler: sampleHandler}
		if err := c.Call(ctx, bench.CallMost, agents.CallStart, cfg, nil); err != nil {
			return fmt.Errorf("start agents: %w", err)
		}
	}
	return nil
}

// pace has the agents offer so many results a second together, and each so many-th send as fast as they are taken.
func (p *Plane) pace(ctx context.Context, rate float64, flood int64) error {
	for _, c := range p.players {
		if err := c.Call(ctx, bench.CallMost, agents.CallPace, agents.Pace{Rate: int64(rate / float64(len(p.players))),
			Flood: flood}, nil); err != nil {
			return err
		}
	}
	return nil
}

// all calls each process that plays agents.
func (p *Plane) all(ctx context.Context, method string) error {
	for _, c := range p.players {
		if err := c.Call(ctx, bench.CallMost, method, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// counts adds up what the processes counted.
func (p *Plane) counts(ctx context.Context) (sum agents.Counts, err error) {
	for _, c := range p.players {
		var one agents.Counts
		if err := c.Call(ctx, bench.CallMost, agents.CallCounts, nil, &one); err != nil {
			return sum, err
		}
		sum.Sessions += one.Sessions
		sum.Opened += one.Opened
		sum.Requests += one.Requests
		sum.Events += one.Events
		sum.Keepalives += one.Keepalives
		sum.Held += one.Held
		sum.Lost += one.Lost
		sum.Bytes += one.Bytes
		sum.Sampled += one.Sampled
		if one.Reason != "" {
			sum.Reason = one.Reason
		}
	}
	return sum, nil
}

// AwaitSessions waits until all agents are connected.
func (p *Plane) AwaitSessions(ctx context.Context, most time.Duration) error {
	end, said := time.Now().Add(most), time.Now()
	for {
		n, err := p.counts(ctx)
		if err != nil || n.Sessions == int64(p.o.Agents) {
			return err
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			p.o.Say("%d of %d sessions, %d lost %s", n.Sessions, p.o.Agents, n.Lost, n.Reason)
		}
		if time.Now().After(end) {
			return fmt.Errorf("only %d of %d sessions after %s: %s", n.Sessions, p.o.Agents, most, n.Reason)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		bench.Settle(ctx, 20*time.Millisecond)
	}
}

// Figures are what the servers tell of themselves, added up; of one that was killed, what it told last.
type figures struct {
	Stored, steady, commits, changes, dropped, merged, pending float64
}

func (f *figures) add(o figures) {
	f.Stored += o.Stored
	f.steady += o.steady
	f.commits += o.commits
	f.changes += o.changes
	f.dropped += o.dropped
	f.merged += o.merged
	f.pending += o.pending
}

func (p *Plane) Figures(ctx context.Context) (sum figures, err error) {
	if p.told == nil {
		p.told = make([]figures, len(p.apis))
	}
	for i, api := range p.apis {
		if i != p.dead {
			if p.told[i], err = ask(ctx, api); err != nil {
				return sum, err
			}
		}
		sum.add(p.told[i])
	}
	return sum, nil
}

func ask(ctx context.Context, api string) (f figures, err error) {
	c, err := sensu.New(sensu.Config{Address: api})
	if err != nil {
		return f, err
	}
	defer c.Close()
	text, _, err := c.Do(ctx, "GET", "/metrics", nil, nil)
	if err == nil {
		f.read(string(text))
	}
	return f, err
}

func (f *figures) read(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		rest, ok := strings.CutPrefix(line, "sensu_go_")
		at := strings.LastIndexByte(rest, ' ')
		if !ok || at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			continue
		}
		name, labels, _ := strings.Cut(rest[:at], "{")
		switch name {
		case "events_processed":
			f.Stored += v
		case "events_keepalives": // results of checks are what is counted; a keepalive is steady, mostly
			f.Stored -= v
			f.steady -= v
		case "events_steady":
			f.steady += v
		case "store_commits":
			f.commits += v
		case "store_changes":
			f.changes += v
		case "events_dropped":
			f.dropped += v
		case "events_pending_bytes", "events_forward_pending_bytes":
			f.pending += v
		case "handler_events":
			if strings.Contains(labels, `"merged"`) || strings.Contains(labels, `"shed"`) {
				f.merged += v
			}
		}
	}
}
