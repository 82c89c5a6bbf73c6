// Package agents simulates Sensu agents by the thousand: each has a WebSocket session of its own with a server, logs
// in, waits for its configuration, keeps alive, pings, and answers each check request with an event in protobuf as
// large as a real one.
//
// What a simulated agent costs is not what is measured, so one loop over epoll serves all sessions of a process:
// events are copies of a frame that was encoded once for each check, with the agent's name, times and number put in,
// and masked with zeros. A session is a few hundred bytes, without a goroutine, a timer or a buffer of its own.
//
// The loop owns its sessions; counters alone are read by others. A session that ends is opened again on the next server
// after a second, as agents do. An agent whose socket takes nothing holds back its events and counts them; nothing is
// sent later under an older time. It runs on Linux only.
package agents

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
)

// SampleNamespace is where the sampled agents are: their events are followed to where they are stored and handled.
const SampleNamespace = "bench-sample"

// NameLength is how long the name of each agent is.
const NameLength = 12

// Name is the name of an agent.
func Name(id int) string { return fmt.Sprintf("bench-%06d", id) }

// CheckName is the name of a check.
func CheckName(i int) string { return fmt.Sprintf("bench-check-%04d", i) }

// Subscription is the subscription that the agent with this id has, or the check with this number.
func Subscription(n, of int) string { return fmt.Sprintf("bench-%d", n%of) }

// CheckCommand is what the reference's load tool has its agents answer without running anything.
const CheckCommand = "!sensu_test_check!"

// Config says which agents to simulate.
type Config struct {
	Targets       []string `json:"targets"` // IPv4 addresses and ports for agents
	First         int      `json:"first"`   // id of the first agent
	Count         int      `json:"count"`
	Sampled       int      `json:"sampled"` // agents with smaller ids are in SampleNamespace
	Checks        int      `json:"checks"`
	Subscriptions int      `json:"subscriptions"`
	Interval      int      `json:"interval"`  // of the checks, seconds
	Keepalive     int      `json:"keepalive"` // seconds between keepalives
	Rate          int      `json:"rate"`      // sessions opened a second; 0 is as fast as they are taken
	User          string   `json:"user"`
	Password      string   `json:"password"`
	// SampleHandler is the handler of the sampled agents' checks.
	SampleHandler string `json:"sample_handler"`
}

// Counts are running totals since the start.
type Counts struct {
	Sessions   int64  `json:"sessions"` // that are ready now
	Opened     int64  `json:"opened"`   // that became ready
	Requests   int64  `json:"requests"` // check requests
	Events     int64  `json:"events"`   // results of checks that were sent
	Keepalives int64  `json:"keepalives"`
	Held       int64  `json:"held"` // events that were not sent, since the server took nothing
	Lost       int64  `json:"lost"` // sessions that ended
	Bytes      int64  `json:"bytes"`
	Sampled    int64  `json:"sampled"`          // events of sampled agents
	Reason     string `json:"reason,omitempty"` // of the last loss
}

// Pace says how events are sent without being asked.
type Pace struct {
	// Rate is how many events a second are offered by all sessions together, whether they are taken or not; 0 is none.
	Rate int64 `json:"rate"`
	// Flood has each so many-th session send as fast as its events are taken, whatever Rate says: what is not sent of
	// Rate then is held back. 0 is none.
	Flood int64 `json:"flood"`
}

// Fleet is a set of simulated agents.
type Fleet struct {
	cfg     Config
	targets []netip.AddrPort
	forms   [2][]template // of checks, by namespace
	alive   [2][]template // of keepalives, by namespace and subscription
	quiet   atomic.Bool   // no events
	flood   atomic.Int64  // each so many-th session sends events without being asked, as fast as they are taken; 0 is none
	pace    atomic.Int64  // so many events a second are offered; 0 is none
	counters
}

// counters are written by the loop and read by Counts.
type counters struct {
	sessions, opened, requests, events, keepalives, held, lost, bytes, sampled atomic.Int64
	reason                                                                     atomic.Pointer[string]
}

// New checks cfg. It opens nothing.
func New(cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg}
	for _, t := range cfg.Targets {
		ap, err := netip.ParseAddrPort(t)
		if err != nil || !ap.Addr().Is4() {
			return nil, fmt.Errorf("target %q must be an IPv4 address and a port", t)
		}
		f.targets = append(f.targets, ap)
	}
	switch {
	case len(f.targets) == 0:
		return nil, errors.New("no targets")
	case cfg.Count < 1 || cfg.First < 0 || cfg.First+cfg.Count > 1_000_000:
		return nil, fmt.Errorf("agents %d to %d: ids have six digits", cfg.First, cfg.First+cfg.Count)
	case cfg.Subscriptions < 1 || cfg.Checks < 0 || cfg.Checks > 9999 || cfg.Keepalive < 1:
		return nil, errors.New("subscriptions, checks and keepalive must be positive")
	}
	for i, ns := range []string{"default", SampleNamespace} {
		for c := range cfg.Checks {
			f.forms[i] = append(f.forms[i], checkTemplate(&cfg, ns, c))
		}
		for sub := range cfg.Subscriptions {
			f.alive[i] = append(f.alive[i], keepaliveTemplate(&cfg, ns, Subscription(sub, cfg.Subscriptions)))
		}
	}
	return f, nil
}

// Counts returns the counts.
func (c *counters) Counts() Counts {
	now := Counts{Sessions: c.sessions.Load(), Opened: c.opened.Load(), Requests: c.requests.Load(),
		Events: c.events.Load(), Keepalives: c.keepalives.Load(), Held: c.held.Load(), Lost: c.lost.Load(),
		Bytes: c.bytes.Load(), Sampled: c.sampled.Load()}
	if r := c.reason.Load(); r != nil {
		now.Reason = *r
	}
	return now
}
