package meshruns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// RefusalReport tells what it cost that every proxy refused a listener.
type RefusalReport struct {
	Proxies, Refusals int
	// Builds are values that the server made between the refused write and the end of the quiet time after it, Responses
	// of listeners that it sent for them, Resent those with a content that the proxy had refused already.
	Builds, Responses, Resent int
}

// RunRefusals is B10: all proxies refuse one change of their listeners. Each is sent it once, whatever else changes;
// what else changes arrives; the status shows them; and the next content that they take ends it.
func RunRefusals(ctx context.Context, l *faultrun.Lab, proxies int) (report RefusalReport, err error) {
	f, err := openFleet(ctx, l, 1, proxies, 50, 10)
	if err != nil {
		return report, err
	}
	defer f.Close()
	s := f.Servers[0]
	refused := f.refuse()
	totals := func() (all [3]float64, err error) {
		for i, name := range [][2]string{{"mesh_snapshots_builds", ""}, {"xds_responses", "listener"}, {"xds_nacks", ""}} {
			if all[i], err = f.total(ctx, s, name[0], name[1]); err != nil {
				return all, err
			}
		}
		return all, nil
	}
	before, err := totals()
	if err != nil {
		return report, err
	}
	if err := f.put(ctx, "/v1/config", object{"Kind": "service-defaults", "Name": "app", "Protocol": "http",
		"LocalRequestTimeoutMs": 1234}); err != nil {
		return report, err
	}
	if err := f.state(ctx, "refused", proxies); err != nil {
		return report, err
	}
	// What else changes gets through, and brings no refused content again.
	for n := 1; n <= 3; n++ {
		if err := f.mark(ctx, n); err != nil {
			return report, err
		}
		if err := f.everyone(ctx, "to get what else changes", func(p *adsProxy) bool { return p.mark >= n }); err != nil {
			return report, err
		}
	}
	after, err := totals()
	if err != nil {
		return report, err
	}
	report = RefusalReport{Proxies: proxies, Builds: int(after[0] - before[0]), Responses: int(after[1] - before[1]),
		Refusals: int(after[2] - before[2])}
	f.judge(nil)
	for _, c := range refused {
		for _, n := range c {
			report.Resent += n - 1
		}
	}
	if err := f.put(ctx, "/v1/config", object{"Kind": "service-defaults", "Name": "app", "Protocol": "http"}); err != nil {
		return report, err
	}
	if err := f.state(ctx, "synced", proxies); err != nil {
		return report, err
	}
	switch {
	case report.Resent > 0 || report.Responses != proxies || report.Refusals != proxies:
		err = fmt.Errorf("refused content was sent again: %+v", report)
	case report.Builds > 20: // the write touches app's own value and api's chain, and each mark the endpoints
		err = fmt.Errorf("more was built than changed: %+v", report)
	}
	return report, errors.Join(err, f.Damage())
}

// refuse has every proxy refuse all listeners from now on. It returns, by connection, how often each content came to
// each proxy.
func (f *fleet) refuse() []map[string]int {
	refused := make([]map[string]int, len(f.conns))
	for i, c := range f.conns {
		refused[i] = map[string]int{}
		c.mu.Lock()
		c.judge = func(p *adsProxy, r *adsResponse) string {
			p.mark = max(p.mark, markOf(r))
			if r.Type != adsListener {
				return ""
			}
			for _, one := range r.Resources {
				refused[i][p.id+" "+one.Name+" "+one.Version]++
			}
			return "this listener cannot be: port 1000 is on fire"
		}
		c.mu.Unlock()
	}
	return refused
}

// state waits until so many proxies are in a state.
func (f *fleet) state(ctx context.Context, state string, n int) error {
	return spawn.Until(ctx, 60*time.Second, fmt.Sprintf("%d proxies to be %s", n, state), func() error {
		got, err := f.states(ctx)
		if err == nil && got[state] != n {
			err = fmt.Errorf("they are %v", got)
		}
		return err
	})
}

// SlowReport tells what streams that read one byte a second did.
type SlowReport struct {
	Proxies, Slow, Changes int
	// Streams are those that are left at the end. RSSBefore and RSSMost are in bytes.
	Streams            int
	RSSBefore, RSSMost int64
}

// RunSlowStreams is B2 for streams of discovery: beside many proxies, slow ones read one byte a second while
// endpoints change again and again. The others get each change; the slow ones are cut, and cost a bounded amount of
// memory until then.
//
// With changes above 0 it ends after so many, without waiting for the cut.
func RunSlowStreams(ctx context.Context, l *faultrun.Lab, proxies, slow, changes int) (report SlowReport, err error) {
	const instances = 2000 // endpoints of some 85 kB
	f, err := openFleet(ctx, l, 1, proxies+slow, 50, instances)
	if err != nil {
		return report, err
	}
	defer f.Close()
	report = SlowReport{Proxies: proxies, Slow: slow}
	s := f.Servers[0]
	report.RSSBefore = s.RSS()
	f.judge(func(p *adsProxy, r *adsResponse) string {
		p.mark = max(p.mark, markOf(r))
		return ""
	})
	// The last proxies have connections of their own, with a window that holds less than one response.
	fast := f.conns
	for _, p := range f.proxies[proxies:] {
		c := &adsConn{addr: s.GRPC, proxies: []*adsProxy{newAdsProxy(p.node, p.id)}, small: true}
		c.start(ctx)
		f.conns = append(f.conns, c)
	}
	if err := f.everyone(ctx, "to be configured", (*adsProxy).configured); err != nil {
		return report, err
	}
	lame := f.conns[len(fast):]
	f.conns = fast
	defer func() {
		for _, c := range lame {
			c.stop()
		}
	}()
	for _, c := range lame {
		c.slow.Store(true)
	}
	want := float64(proxies + slow)
	streams := func() error {
		n, err := f.total(ctx, s, "xds_server_streams", "")
		if report.Streams = int(n); err == nil && n != want {
			err = fmt.Errorf("%g streams, want %g", n, want)
		}
		return err
	}
	want += float64(slow)
	if err := spawn.Until(ctx, 30*time.Second, "the slow streams to be there", streams); err != nil {
		return report, err
	}
	want -= float64(slow)
	end := time.Now().Add(3 * time.Minute)
	for streams() != nil && (changes == 0 || report.Changes < changes) {
		if time.Now().After(end) {
			return report, fmt.Errorf("slow streams are not cut: %+v", report)
		}
		report.Changes++
		if err := f.mark(ctx, report.Changes); err != nil {
			return report, err
		}
		if err := f.everyone(ctx, "to get a change beside slow ones", marked(report.Changes)); err != nil {
			return report, err
		}
		report.RSSMost = max(report.RSSMost, s.RSS())
		if changes == 0 {
			_ = spawn.Sleep(ctx, time.Second)
		}
	}
	if bound := 2*report.RSSBefore + 64<<20; report.RSSBefore > 0 && report.RSSMost > bound {
		err = fmt.Errorf("memory grew beyond %d bytes: %+v", bound, report)
	}
	return report, errors.Join(err, f.Damage())
}

// marked tells of proxies that have change n.
func marked(n int) func(*adsProxy) bool { return func(p *adsProxy) bool { return p.mark >= n } }

// configured reports whether the proxy has what it needs to take traffic.
func (p *adsProxy) configured() bool {
	return len(p.have[adsListener]) > 0 && len(p.have[adsEndpoint]) > 0
}

// ResumeReport tells what streams saw across restarts and changes of leader.
type ResumeReport struct {
	Proxies, Reconnects, Changes int
	// Again are resources that came although the proxy had them.
	Again int
}

// RunResume is A3 for streams of discovery: servers are ended, killed and led by others while endpoints change. On each
// connection values never go back; the newest arrives; and who comes back with what it has, to whichever server, gets
// nothing again.
func RunResume(ctx context.Context, l *faultrun.Lab, proxies, rounds int, seed uint64) (report ResumeReport,
	err error) {
	rng := rand.New(rand.NewPCG(seed, 3))
	f, err := openFleet(ctx, l, 3, proxies, 10, 10)
	if err != nil {
		return report, err
	}
	defer f.Close()
	report.Proxies = proxies
	var back error // guarded by the connections' locks, one after the other in everyone
	f.judge(func(p *adsProxy, r *adsResponse) string {
		if m := markOf(r); m > 0 {
			if m < p.mark {
				back = fmt.Errorf("%s got mark %d after %d", p.id, m, p.mark)
			}
			p.mark = m
		}
		return ""
	})
	for range rounds {
		victim := f.Servers[rng.IntN(len(f.Servers))]
		switch rng.IntN(3) {
		case 0:
			victim.Kill()
		case 1:
			if err := victim.Stop(); err != nil {
				return report, err
			}
		default:
			if err := f.Transfer(ctx); err != nil {
				return report, err
			}
			victim = nil
		}
		for range 1 + rng.IntN(3) { // while it is away
			report.Changes++
			if err := f.markAnywhere(ctx, report.Changes, victim); err != nil {
				return report, err
			}
		}
		if err := f.comeBack(ctx, victim, &report); err != nil {
			return report, err
		}
		if err := f.everyone(ctx, "to have the newest", marked(report.Changes)); err != nil {
			return report, errors.Join(back, err)
		}
		if victim != nil {
			if err := victim.Start(); err != nil {
				return report, err
			}
			if err := f.Ready(ctx, harness.StartLimit); err != nil {
				return report, err
			}
		}
		// All come again, to other servers, while nothing changes.
		if err := f.Converged(ctx, 20*time.Second); err != nil {
			return report, err
		}
		if err := f.again(ctx, rng, &report); err != nil {
			return report, err
		}
	}
	return report, errors.Join(back, f.Damage())
}

// markAnywhere writes a mark through a server that lives.
func (f *fleet) markAnywhere(ctx context.Context, n int, dead *faultrun.Server) error {
	for _, s := range f.Servers {
		if s != dead {
			f.Admin.At(s.HTTP)
			break
		}
	}
	return f.mark(ctx, n)
}

// comeBack connects those whose server is gone to another one.
func (f *fleet) comeBack(ctx context.Context, dead *faultrun.Server, report *ResumeReport) error {
	for _, c := range f.conns {
		if dead == nil || c.addr != dead.GRPC {
			continue
		}
		c.stop()
		report.Reconnects++
		for _, s := range f.Servers {
			if s != dead {
				c.addr = s.GRPC
			}
		}
		c.start(ctx)
	}
	return nil
}

// again has every connection come anew with what its proxies have, and counts what is sent nevertheless.
func (f *fleet) again(ctx context.Context, rng *rand.Rand, report *ResumeReport) error {
	for _, c := range f.conns {
		c.stop()
		for _, p := range c.proxies {
			p.news, p.sent = 0, map[string]int{}
		}
		c.addr = f.Servers[rng.IntN(len(f.Servers))].GRPC
		report.Reconnects++
		c.start(ctx)
	}
	// One change more is what all get, and nothing before it.
	report.Changes++
	n := report.Changes
	if err := f.mark(ctx, n); err != nil {
		return err
	}
	if err := f.everyone(ctx, "to have what changed after it came again",
		func(p *adsProxy) bool { return p.mark == n }); err != nil {
		return err
	}
	for _, c := range f.conns {
		c.mu.Lock()
		for _, p := range c.proxies {
			report.Again += max(0, p.news-1)
		}
		c.mu.Unlock()
	}
	if report.Again > 0 {
		return fmt.Errorf("who came back was sent again what it had: %+v", *report)
	}
	return nil
}
