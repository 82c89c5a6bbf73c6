package freezeruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/doctor"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// RunFrozenDoctor freezes one of three servers, the leader first, waits until gossip has given it up, and asks the
// doctor through every process that runs, a client agent too: each names the frozen server and what it could not
// reach, says that nothing is left to spare, and answers within limit. So do the Doctor screens of the servers' web
// UIs. It returns the slowest answer.
func RunFrozenDoctor(ctx context.Context, l *faultrun.Lab, limit time.Duration) (slowest time.Duration, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 3})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	agent, err := c.StartAgent()
	if err != nil {
		return 0, err
	}
	defer agent.Kill()
	if err := spawn.Until(ctx, harness.StartLimit, "the agent to answer", func() error {
		if got := c.Admin.At(agent.HTTP).Do(ctx, "GET", "/v1/catalog/nodes", nil); got.Status != 200 {
			return errors.New(got.String())
		}
		return nil
	}); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, agent.Log())
	}
	leader, err := c.AwaitLeader(ctx, harness.StartLimit)
	if err != nil {
		return 0, err
	}
	if err := leader.Freeze(); err != nil {
		return 0, err
	}
	others := append(c.Followers(leader), agent)
	for _, gaveUp := range []bool{false, true} { // at once, and when gossip counts it as dead
		for _, s := range others {
			if gaveUp {
				if err := spawn.Until(ctx, 2*time.Minute, s.Name+" to give the frozen server up",
					func() error { return givenUp(ctx, c, s, leader) }); err != nil {
					return slowest, err
				}
			}
			err := spawn.Until(ctx, time.Minute, "the doctor of "+s.Name+" to name the frozen server", func() error {
				begin := time.Now()
				report, err := askDoctor(ctx, c, s)
				took := time.Since(begin)
				slowest = max(slowest, took)
				switch {
				case err != nil:
					return err
				case took > limit:
					return spawn.Hopeless(fmt.Errorf("the doctor of %s took %s", s.Name, took))
				}
				return named(report, leader, gaveUp)
			})
			if err == nil && s != agent {
				err = spawn.Until(ctx, time.Minute, "the Doctor screen of "+s.Name+" to name the frozen server",
					func() error { return onScreen(ctx, c, s, leader) })
			}
			if err != nil {
				return slowest, fmt.Errorf("%w\n%s%s", err, c.Logs(), agent.Log())
			}
		}
	}
	return slowest, errors.Join(leader.Thaw(), c.Damage(), agent.Damage())
}

// givenUp returns nil when gossip, as a process knows it, counts a server as failed.
func givenUp(ctx context.Context, c *faultrun.Cluster, at, frozen *faultrun.Server) error {
	got := c.Admin.At(at.HTTP).Do(ctx, "GET", "/v1/agent/members", nil)
	var list []struct {
		Name   string
		Status int
	}
	if err := json.Unmarshal(got.Body, &list); err != nil {
		return fmt.Errorf("%s: %w", got, err)
	}
	for _, m := range list {
		if strings.TrimSuffix(m.Name, ".dc1") == frozen.Name && m.Status != 1 {
			return nil
		}
	}
	return fmt.Errorf("%s is not given up by %s", frozen.Name, at.Name)
}

// believed waits until a process gives up nobody any more: who was frozen is alive for it again.
func believed(ctx context.Context, c *faultrun.Cluster, at *faultrun.Server) error {
	return spawn.Until(ctx, harness.StartLimit, "all to be alive", func() (err error) {
		for _, s := range c.Servers {
			if givenUp(ctx, c, at, s) == nil {
				err = errors.Join(err, errors.New(s.Name+" is given up"))
			}
		}
		return err
	})
}

// doctor asks a process for its report.
func askDoctor(ctx context.Context, c *faultrun.Cluster, s *faultrun.Server) (report doctor.Report, err error) {
	got := c.Admin.At(s.HTTP).Do(ctx, "GET", "/v1/doctor", nil)
	if got.Status != 200 {
		return report, errors.New(got.String())
	}
	return report, json.Unmarshal(got.Body, &report)
}

// onScreen returns nil when the Doctor screen of a server's web UI lists the frozen one among those that did not
// answer, and says so in a finding.
func onScreen(ctx context.Context, c *faultrun.Cluster, at, frozen *faultrun.Server) error {
	got := c.Admin.At(at.HTTP).Do(ctx, "GET", "/ui/api/topic/doctor", nil)
	if got.Status != 200 {
		return errors.New(got.String())
	}
	var screen struct {
		Value struct {
			Findings []struct{ ID string }
			Silent   []doctor.Silent
		}
	}
	if err := json.Unmarshal(got.Body, &screen); err != nil {
		return err
	}
	for _, f := range screen.Value.Findings {
		if strings.HasPrefix(f.ID, "member-silent ") && strings.Contains(f.ID, frozen.Name) &&
			slices.ContainsFunc(screen.Value.Silent, func(s doctor.Silent) bool { return s.Member == frozen.Name }) {
			return nil
		}
	}
	return fmt.Errorf("the screen has %s", got.Body)
}

// named returns nil when a report names a frozen server, and with lasting that the group has nothing to spare.
func named(report doctor.Report, frozen *faultrun.Server, lasting bool) error {
	silent := slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool {
		return f.Code == "member-silent" && strings.Contains(f.Culprit+f.Member, frozen.Name)
	})
	spare := slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.Code == "no-spare-voter" })
	if silent && (spare || !lasting) {
		return nil
	}
	var all []string
	for _, f := range report.Findings {
		all = append(all, f.Code+": "+f.Title)
	}
	return fmt.Errorf("the findings are %q; silent: %v", all, report.Silent)
}
