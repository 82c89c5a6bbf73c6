package monitorload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/agents"
)

// MonitorResult is what the benches of the monitor plane measured. Rates are of results of checks; keepalives are
// apart.
type MonitorResult struct {
	Setup
	Rates
	Tally
	Latency
	Resident
	Ramp   Phase   `json:"ramp"`
	Rest   Phase   `json:"rest"` // sessions that only keep alive
	Steady Phase   `json:"steady"`
	CPU    float64 `json:"cpu_share"` // of all processes together while checks run
	StoreWork
	FalseAlarms int64         `json:"keepalive_alarms"`
	Reconnects  int64         `json:"sessions_lost"`
	Kill        *Killed       `json:"kill,omitempty"`
	Overload    *Flooded      `json:"overload,omitempty"`
	Floors      *bench.Floors `json:"floors,omitempty"`
}

// Setup is what was run.
type Setup struct {
	Bench         string    `json:"bench"`
	Machine       string    `json:"machine"`
	Date          time.Time `json:"date"`
	Servers       int       `json:"servers"`
	Agents        int       `json:"agents"`
	Checks        int       `json:"checks"`
	Interval      int       `json:"interval"`
	Subscriptions int       `json:"subscriptions"`
	Keepalive     int       `json:"keepalive_interval"`
	EventsStore   string    `json:"events_store"`
	Seconds       float64   `json:"seconds"` // of the steady phase
}

// Rates are those of the steady phase.
type Rates struct {
	Sessions         int64   `json:"sessions"`           // at the end of the steady phase
	OfferedPerSecond float64 `json:"offered_per_second"` // what checks ask for; where nobody asks, what agents sent
	EventsPerSecond  float64 `json:"events_per_second"`  // taken by the store in the steady phase
	LowestPerSecond  float64 `json:"lowest_per_second"`  // in windows of one interval (events: of a second)
	HighestPerSecond float64 `json:"highest_per_second"`
	Keepalives       float64 `json:"keepalives_per_second"`
}

// Tally counts the results of the whole run.
type Tally struct {
	// Sent are all results that agents sent from the first to the last, Stored those that are durable, Shed those that
	// servers say that they dropped or agents held back, and Lost the rest. With --kill, Stored counts for the server
	// that died what it told last, and Lost what was on its way to it or from it.
	Sent   int64 `json:"sent"`
	Stored int64 `json:"stored"`
	Shed   int64 `json:"shed"`
	Lost   int64 `json:"lost"`
}

// Latency is that of the sample.
type Latency struct {
	P50        float64            `json:"p50_ms"` // from sending until durable and shown, of the sample
	P99        float64            `json:"p99_ms"`
	HandlerP50 float64            `json:"handler_p50_ms"` // until a TCP handler had it
	HandlerP99 float64            `json:"handler_p99_ms"`
	Durable    map[string]float64 `json:"stored_ms"`
	Handled    map[string]float64 `json:"handler_ms"`
}

// Resident is memory.
type Resident struct {
	// Resident bytes of all servers beyond EmptyRSS, by sessions: when the last session was ready, and after they kept
	// alive for two intervals. Empty is when the servers had started and nobody was connected. What the kernel keeps of
	// sockets is no process's, and not in these.
	EmptyRSS        int64 `json:"empty_rss_bytes"`
	RampBytes       int64 `json:"ramp_bytes_per_session"`
	BytesPerSession int64 `json:"bytes_per_session"`

	ServerRSS int64 `json:"server_rss_bytes"` // of all servers, at the end
}

// StoreWork is what results cost the store.
type StoreWork struct {
	Operations   float64 `json:"store_operations_per_event"`
	BytesWritten float64 `json:"bytes_written_per_event"`
	SteadyShare  float64 `json:"steady_share"` // results that passed as the one before
}

// Phase is how long a part of the run took, and how much of the machine.
type Phase struct {
	Seconds    float64 `json:"seconds"`
	ServersCPU float64 `json:"servers_cpu_share"` // of all processors of the machine
	AgentsCPU  float64 `json:"agents_cpu_share"`
	StoreCPU   float64 `json:"database_cpu_share,omitempty"` // PostgreSQL's
}

// Killed is what the end of a server did.
type Killed struct {
	Who         string  `json:"who"`
	Sessions    int64   `json:"sessions"` // that it had
	BackSeconds float64 `json:"back_seconds"`
	WatchedFor  float64 `json:"watched_seconds"` // for false alarms, after the kill
	AlarmsAfter int64   `json:"keepalive_alarms"`
	at          time.Time
}

func phase(begin time.Time, a, b usage) Phase {
	s := time.Since(begin).Seconds()
	all := s * float64(runtime.NumCPU())
	return Phase{Seconds: s, ServersCPU: (b.Servers - a.Servers) / all, AgentsCPU: (b.players - a.players) / all,
		StoreCPU: (b.database - a.database) / all}
}

// ramp opens all sessions, and looks at what they cost while nothing is asked of them.
func (r *MonitorResult) ramp(ctx context.Context, p *Plane) error {
	bench.Settle(ctx, min(p.o.Duration, StartUp))
	p.o.Say("opening %d sessions ...", p.o.Agents)
	begin, before := time.Now(), p.Usage()
	r.EmptyRSS = before.rss
	if err := p.Play(ctx); err != nil {
		return err
	}
	if err := p.AwaitSessions(ctx, RampMost(p.o)); err != nil {
		return err
	}
	u := p.Usage()
	r.Ramp = phase(begin, before, u)
	r.RampBytes = (u.rss - before.rss) / int64(p.o.Agents)
	p.o.Say("%d sessions after %.1f s", p.o.Agents, r.Ramp.Seconds)
	interval := min(p.o.Duration, time.Duration(p.o.Keepalive)*time.Second)
	bench.Settle(ctx, interval) // each agent is registered, and has kept alive again
	begin, u = time.Now(), p.Usage()
	bench.Settle(ctx, interval)
	after := p.Usage()
	r.Rest = phase(begin, u, after)
	r.BytesPerSession = (after.rss - before.rss) / int64(p.o.Agents)
	return ctx.Err()
}

// StartUp is when a server has given back what it only needed to start.
const StartUp = 6 * time.Second

// RampMost is more than a stock backend takes for each session.
func RampMost(o *MonitorOptions) time.Duration {
	most := time.Minute + time.Duration(o.Agents)*50*time.Millisecond
	if o.Ramp > 0 {
		most += time.Duration(o.Agents/o.Ramp+1) * time.Second
	}
	return most
}

// steady has the checks run and counts.
func (r *MonitorResult) steady(ctx context.Context, p *Plane) error {
	first, err := p.Figures(ctx)
	if err != nil {
		return err
	}
	if err := p.Checks(ctx); err != nil {
		return err
	}
	if p.o.flood {
		if err := p.all(ctx, agents.CallFlood); err != nil {
			return err
		}
	}
	p.o.Say("checks run; %s to warm up, %s measured ...", r.window(p), p.o.Duration)
	bench.Settle(ctx, r.window(p)) // each key's first result is written whole
	from, err := p.Figures(ctx)
	if err != nil {
		return err
	}
	sent, err := p.counts(ctx)
	if err != nil {
		return err
	}
	begin, before := time.Now(), p.Usage()
	p.Follow.Record(true)
	to, err := r.windows(ctx, p, from, begin)
	if err != nil {
		return err
	}
	p.Follow.Record(false)
	took := time.Since(begin).Seconds()
	r.Steady = phase(begin, before, p.Usage())
	now, err := p.counts(ctx)
	if err != nil {
		return err
	}
	r.CPU = r.Steady.ServersCPU + r.Steady.AgentsCPU + r.Steady.StoreCPU
	if p.o.flood {
		r.OfferedPerSecond = float64(now.Events+now.Held-sent.Events-sent.Held) / took
	}
	r.Sessions, r.Reconnects = now.Sessions, now.Lost
	r.Keepalives = float64(now.Keepalives-sent.Keepalives) / took
	if events := to.Stored - from.Stored; events > 0 {
		r.EventsPerSecond = events / took
		r.Operations, r.BytesWritten, r.SteadyShare = (to.commits-from.commits)/events,
			(p.Usage().written-before.written)/events, (to.steady-from.steady)/events
	}
	return r.finish(ctx, p, first)
}

// window is the span over which the load is even.
func (r *MonitorResult) window(p *Plane) time.Duration {
	if p.o.flood {
		return time.Second
	}
	return time.Duration(p.o.Interval) * time.Second
}

// windows watches the rate until the duration is over, and kills whom it is to.
func (r *MonitorResult) windows(ctx context.Context, p *Plane, from figures, begin time.Time) (figures, error) {
	last, lastAt := from, begin
	end := begin.Add(p.o.Duration)
	for time.Now().Before(end) && ctx.Err() == nil {
		bench.Settle(ctx, min(r.window(p), time.Until(end)))
		if p.o.Kill != "" && r.Kill == nil && time.Since(begin) >= p.o.Duration/2 {
			if err := r.kill(ctx, p); err != nil {
				return last, err
			}
			continue
		}
		now, err := p.Figures(ctx)
		if err != nil {
			return last, err
		}
		took := time.Since(lastAt)
		rate := (now.Stored - last.Stored) / took.Seconds()
		if r.Kill == nil && took > r.window(p)*9/10 {
			if r.LowestPerSecond == 0 || rate < r.LowestPerSecond {
				r.LowestPerSecond = rate
			}
			r.HighestPerSecond = max(r.HighestPerSecond, rate)
		}
		last, lastAt = now, time.Now()
	}
	return last, ctx.Err()
}

// finish has the agents be quiet, waits until what they sent is durable, and compares.
func (r *MonitorResult) finish(ctx context.Context, p *Plane, first figures) error {
	if err := p.all(ctx, agents.CallQuiet); err != nil {
		return err
	}
	var now figures
	var sent agents.Counts
	for moved, before := time.Now(), 0.0; time.Since(moved) < p.o.wait &&
		ctx.Err() == nil; bench.Settle(ctx, 100*time.Millisecond) {
		var err error
		if now, err = p.Figures(ctx); err != nil {
			return err
		}
		if sent, err = p.counts(ctx); err != nil {
			return err
		}
		if now.Stored != before {
			moved, before = time.Now(), now.Stored
		}
		if now.pending == 0 && (p.o.Kill != "" && time.Since(moved) > 2*time.Second ||
			int64(now.Stored-first.Stored) >= sent.Events) {
			break
		}
	}
	r.Sent, r.Stored = sent.Events, int64(now.Stored-first.Stored)
	r.Shed = int64(now.dropped-first.dropped) + sent.Held
	r.Lost = r.Sent - r.Stored - int64(now.dropped-first.dropped)
	r.FalseAlarms = p.Follow.alarms.Load()
	r.ServerRSS = p.Usage().rss
	r.Durable, r.Handled = p.Follow.Latencies()
	r.P50, r.P99, r.HandlerP50, r.HandlerP99 = r.Durable["p50"], r.Durable["p99"], r.Handled["p50"], r.Handled["p99"]
	if r.Kill != nil {
		r.Kill.AlarmsAfter, r.Kill.WatchedFor = r.FalseAlarms-r.Kill.AlarmsAfter, time.Since(r.Kill.at).Seconds()
	}
	return ctx.Err()
}

// WriteJSON writes the result as one indented JSON object.
func (r *MonitorResult) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the result for people.
func (r *MonitorResult) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "bench %s  %d servers, events store %s, %d agents, %d checks every %d s in %d subscriptions\n%s  %s\n",
		r.Bench, r.Servers, r.EventsStore, r.Agents, r.Checks, r.Interval, r.Subscriptions,
		r.Machine, r.Date.Format(time.DateOnly))
	fmt.Fprintf(&b, "  sessions %d after %.1f s, %d lost since; servers %.0f MiB empty, %.0f MiB at the end\n", r.Sessions,
		r.Ramp.Seconds, r.Reconnects, float64(r.EmptyRSS)/(1<<20), float64(r.ServerRSS)/(1<<20))
	fmt.Fprintf(&b, "  memory   %d bytes a session after two intervals at rest, %d when the last was ready\n",
		r.BytesPerSession, r.RampBytes)
	fmt.Fprintf(&b, "  events   %.0f/s (lowest %.0f, highest %.0f), offered %.0f/s; keepalives %.0f/s\n",
		r.EventsPerSecond, r.LowestPerSecond, r.HighestPerSecond, r.OfferedPerSecond, r.Keepalives)
	fmt.Fprintf(&b, "  sent %d, stored %d, shed %d, lost %d; keepalive alarms %d\n", r.Sent, r.Stored, r.Shed, r.Lost,
		r.FalseAlarms)
	fmt.Fprintf(&b, "  sent to durable p50 %.1f, p99 %.1f ms; to handler p50 %.1f, p99 %.1f ms\n", r.P50, r.P99,
		r.HandlerP50, r.HandlerP99)
	for _, ph := range []struct {
		what string
		Phase
	}{{"ramp", r.Ramp}, {"rest", r.Rest}, {"steady", r.Steady}} {
		fmt.Fprintf(&b, "  %-6s   %.1f s, servers %.0f %%, agents %.0f %%, PostgreSQL %.0f %% of the machine\n", ph.what,
			ph.Seconds, 100*ph.ServersCPU, 100*ph.AgentsCPU, 100*ph.StoreCPU)
	}
	fmt.Fprintf(&b, "  an event: %.5f store operations, %.1f bytes written; %.1f %% unchanged\n", r.Operations,
		r.BytesWritten, 100*r.SteadyShare)
	if k := r.Kill; k != nil {
		fmt.Fprintf(&b, "  killed the %s: %d sessions were elsewhere after %.2f s; %d keepalive alarms in the %.0f s after\n",
			k.Who, k.Sessions, k.BackSeconds, k.AlarmsAfter, k.WatchedFor)
	}
	if r.Overload != nil {
		b.WriteString(r.Overload.text(r))
	}
	if r.Floors != nil {
		b.WriteString(r.Floors.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
