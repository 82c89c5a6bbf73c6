package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/roundrobin"
)

// What a result's check.scheduler says: who decided which agent runs it.
const (
	schedulerMemory     = "memory" // each server for its own agents
	schedulerRoundRobin = "corbel" // the servers together
)

// check is a check as it is planned. It is replaced, not changed, but for request and warned.
type check struct {
	key      checkKey
	item     *objects.Item
	config   *monitor.CheckConfig // as it is stored
	shown    *monitor.CheckConfig // as agents get it
	schedule *monitor.Schedule
	targets  *targets // of proxy requests; nil for others

	request *parts    // nil is to be made; under Scheduler.mu
	secrets *revealed // nil before they were looked for; under Scheduler.mu
	warned  bool      // under Scheduler.mu
}

func newCheck(key checkKey, item *objects.Item) (*check, error) {
	c := &check{key: key, item: item, config: item.Object().(*monitor.CheckConfig)}
	var err error
	if c.schedule, err = monitor.NewSchedule(key.name, c.config.Interval, c.config.Cron); err != nil {
		return nil, err
	}
	scheduler := schedulerMemory
	if c.config.RoundRobin {
		scheduler = schedulerRoundRobin
	}
	return c, c.complete(c.config.Subscriptions, scheduler)
}

// complete makes what follows from the configuration.
func (c *check) complete(subscriptions []string, scheduler string) error {
	shown := *c.config
	shown.Scheduler, shown.Subscriptions = scheduler, subscriptions
	c.shown = &shown
	if c.config.ProxyRequests == nil {
		return nil
	}
	var err error
	if err = harmless(c.shown); err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	if c.targets, err = newTargets(c.config.ProxyRequests.EntityAttributes); err != nil {
		return fmt.Errorf("proxy_requests: %w", err)
	}
	return nil
}

func (c *check) subdued(now time.Time) bool {
	return slices.ContainsFunc(c.config.Subdues, func(s *monitor.Subdue) bool { return s.Holds(now) })
}

// tick is the check's tick as it goes round.
func (c *check) tick(due time.Time) roundrobin.Tick {
	return roundrobin.Tick{
		Namespace: c.key.namespace, Check: c.key.name, Due: due.UnixNano(), Turn: turn(c.schedule, due),
		Period:        period(c.schedule, due),
		Subscriptions: c.config.Subscriptions,
	}
}

// defaultCoverage is over how much of the time to the next tick proxy requests are spread, in per cent, where the
// check does not say.
const defaultCoverage = 90

// over returns over what time the proxy requests of a tick are spread; 0 is at once.
func (c *check) over(due time.Time) time.Duration {
	p := c.config.ProxyRequests
	if p == nil || !p.Splay {
		return 0
	}
	coverage := time.Duration(p.SplayCoverage)
	if coverage == 0 {
		coverage = defaultCoverage
	}
	return period(c.schedule, due) / 100 * min(coverage, 100)
}

// parts are what a request holds beside the check. They are never changed.
type parts struct {
	assets     []monitor.Asset
	hooks      []monitor.HookConfig
	hookAssets []monitor.HookAsset
}

func newParts(view *resources.View, c *monitor.CheckConfig) *parts {
	p := &parts{assets: assets(view, c.Namespace, c.RuntimeAssets)}
	var names []string
	for _, list := range c.CheckHooks {
		names = append(names, list.Hooks...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		item := view.Get("hooks", c.Namespace, name)
		if item == nil {
			continue
		}
		hook := item.Object().(*monitor.HookConfig)
		p.hooks = append(p.hooks, *hook)
		if len(hook.RuntimeAssets) > 0 {
			p.hookAssets = append(p.hookAssets, monitor.HookAsset{Hook: name,
				Assets: monitor.AssetList{Assets: assets(view, c.Namespace, hook.RuntimeAssets)}})
		}
	}
	return p
}

// assets returns those whose name begins with one that is wanted, as the contract has it.
func assets(view *resources.View, namespace string, wanted []string) (out []monitor.Asset) {
	if len(wanted) == 0 {
		return nil
	}
	view.List("assets", namespace, "", "", func(i *objects.Item) bool {
		if slices.ContainsFunc(wanted, func(w string) bool { return strings.HasPrefix(i.Name, w) }) {
			out = append(out, *i.Object().(*monitor.Asset))
		}
		return true
	})
	return out
}

// with makes the request of a check.
func (p *parts) with(c *monitor.CheckConfig, issued int64) *monitor.CheckRequest {
	return &monitor.CheckRequest{Config: c, Assets: p.assets, Hooks: p.hooks, HookAssets: p.hookAssets, Issued: issued}
}
