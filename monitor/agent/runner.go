package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/kit/shell"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/agent/points"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/monitor/substitute"
)

// testCommand makes an agent answer at once with a canned output: load tests ask for it.
const testCommand = "!sensu_test_check!"

const cannedOutput = "This is a canned output: no command ran.\n"

// annotationOnDeny sets the status of a command that the allow list denies.
const annotationOnDeny = "allow_list_on_deny_status"

// Bounds of the runner.
const (
	maxWaiting = 4096   // requests that run or wait for their turn
	maxIssued  = 20_000 // checks whose last request is remembered
	// clockJump is how far back a request's time may lie before it counts as a clock that was set back, not as an old
	// request.
	clockJump = 300
)

// runner runs checks. Each request has a goroutine from its acceptance to its result.
type runner struct {
	agent *Agent
	turns chan struct{} // one for each command that may run
	work  sync.WaitGroup

	mu        sync.Mutex // guards below
	ctx       context.Context
	busy      map[string]bool
	issued    map[string]int64
	sequences map[string]int64
}

func newRunner(a *Agent) *runner {
	return &runner{agent: a, turns: make(chan struct{}, a.cfg.MaxRunning), busy: map[string]bool{},
		issued: map[string]int64{}, sequences: map[string]int64{}}
}

// run lets requests in until ctx ends, and returns when all commands have ended.
func (r *runner) run(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	r.work.Wait()
	return nil
}

// newSession begins the sequences anew, as each session must.
func (r *runner) newSession() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.sequences)
}

// sequence returns the next number of a check's events, from 1 on in each session.
func (r *runner) sequence(check string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sequences) >= maxIssued {
		clear(r.sequences)
	}
	r.sequences[check]++
	return r.sequences[check]
}

func key(c *monitor.CheckConfig) string {
	if c.ProxyEntityName == "" {
		return c.Name
	}
	return c.Name + "/" + c.ProxyEntityName
}

// take accepts a request, or says in the log why not. It does not wait.
func (r *runner) take(request *monitor.CheckRequest) {
	ctx, err := r.admit(request)
	if err != nil {
		r.agent.counts.refused.Add(1)
		r.agent.cfg.Log.Warn("skipped a check request", "check", request.Config.Name, "error", err)
		return
	}
	r.work.Go(func() {
		defer r.done(key(request.Config))
		select {
		case r.turns <- struct{}{}:
			defer func() { <-r.turns }()
		case <-ctx.Done():
			return
		}
		e := r.execute(ctx, request)
		if ctx.Err() != nil {
			return // the agent stops: what was killed says nothing of the host
		}
		r.agent.counts.ran.Add(1)
		if err := r.agent.results.put(ctx, tagproto.Append(nil, e)); err != nil {
			r.agent.cfg.Log.Error("a result is lost", "check", e.Check.Name, "error", err)
		}
	})
}

func (r *runner) done(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, key)
}

// admit decides whether a request is to run now.
func (r *runner) admit(request *monitor.CheckRequest) (context.Context, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := key(request.Config)
	last, known := r.issued[k]
	switch {
	case r.ctx == nil:
		return nil, errors.New("the agent does not run")
	case known && request.Issued == last:
		return nil, errors.New("it came before: the agent and the check may share several subscriptions")
	case known && request.Issued < last && last-request.Issued <= clockJump:
		return nil, fmt.Errorf("it is older by %d s than the one before", last-request.Issued)
	case r.busy[k]:
		return nil, errors.New("the run before has not ended")
	case len(r.busy) >= maxWaiting:
		return nil, fmt.Errorf("%d checks run or wait already", maxWaiting)
	}
	if len(r.issued) >= maxIssued {
		clear(r.issued)
	}
	r.issued[k] = request.Issued
	r.busy[k] = true
	return r.ctx, nil
}

// execution is one run of a check.
type execution struct {
	*runner
	request *monitor.CheckRequest
	check   *monitor.CheckConfig // with its tokens replaced
	entity  *monitor.Entity
	data    substitute.Data
	event   *monitor.Event
}

// execute runs a check and returns its event. Whatever goes wrong on the way is an event of status 3.
func (r *runner) execute(ctx context.Context, request *monitor.CheckRequest) *monitor.Event {
	asked := *request.Config
	x := &execution{runner: r, request: request, check: &asked, entity: r.agent.entity.get()}
	x.event = &monitor.Event{
		Meta: monitor.Meta{Namespace: asked.Namespace}, Entity: x.entity, ID: newID(), Pipelines: asked.Pipelines,
		Sequence: r.sequence(asked.Name), Check: result(&asked),
	}
	x.event.Check.Issued, x.event.Check.Executed, x.event.Check.ProcessedBy = request.Issued, r.agent.cfg.Now().Unix(),
		r.agent.cfg.Name
	if err := x.run(ctx); err != nil {
		x.fail(err)
	}
	x.event.Timestamp = r.agent.cfg.Now().Unix()
	return x.event
}

// fail makes the event one of a check that could not run.
func (x *execution) fail(err error) {
	c := x.event.Check
	c.Output, c.Status = err.Error(), shell.StatusFailed
	if errors.Is(err, errDenied) {
		if status, err := strconv.ParseUint(c.Annotations[annotationOnDeny], 10, 32); err == nil {
			c.Status = uint32(status)
		}
	}
	x.agent.cfg.Log.Warn("a check could not run", "check", c.Name, "error", err)
}

func (x *execution) run(ctx context.Context) (err error) {
	if err := x.check.Validate(); err != nil {
		return fmt.Errorf("given check is invalid: %w", err)
	}
	if x.data, err = substitute.NewData(x.entity); err != nil {
		return err
	}
	if x.check.Command != testCommand {
		if err := x.data.Check(x.check); err != nil {
			return fmt.Errorf("error while substituting check tokens: %w", err)
		}
	}
	// The event tells the command as it was asked for: what tokens stand for may be secret.
	command := x.event.Check.Command
	keep := *x.event.Check
	x.event.Check = result(x.check)
	x.event.Check.Command, x.event.Check.Issued, x.event.Check.Executed, x.event.Check.ProcessedBy = command, keep.Issued,
		keep.Executed, keep.ProcessedBy
	x.event.Pipelines = x.check.Pipelines
	ended, err := x.command(ctx, commandOf{line: x.check.Command, timeout: x.check.Timeout, stdin: x.check.Stdin,
		env: x.check.EnvVars, assets: x.request.Assets, what: "check"})
	if err != nil {
		return err
	}
	c := x.event.Check
	c.Duration, c.Status, c.Output = ended.Duration.Seconds(), uint32(ended.Status), string(ended.Output)
	x.metrics()
	x.event.Check.Hooks = x.hooks(ctx)
	if c.DiscardOutput {
		c.Output = ""
	}
	return nil
}

// commandOf is a command of a check or of a hook.
type commandOf struct {
	line    string
	timeout uint32 // seconds
	stdin   bool
	env     []string
	assets  []monitor.Asset
	what    string
}

// timedOut is what the output of a command begins with that was killed for its time.
const timedOut = "Execution timed out\n"

// command runs a command in the environment that the agent gives it.
func (x *execution) command(ctx context.Context, c commandOf) (shell.Result, error) {
	if c.line == testCommand {
		return shell.Result{Output: []byte(cannedOutput)}, nil
	}
	cfg := &x.agent.cfg
	allowed, err := allowedOf(cfg.Allow, c.line, c.what)
	if err != nil {
		return shell.Result{}, err
	}
	env := os.Environ()
	if len(c.assets) > 0 {
		if cfg.DisableAssets || cfg.Assets == nil {
			return shell.Result{}, fmt.Errorf("%s requested assets, but they are disabled on this agent", c.what)
		}
		list := make([]*monitor.Asset, len(c.assets))
		for i := range c.assets {
			list[i] = &c.assets[i]
		}
		unpacked, err := cfg.Assets.FetchAll(ctx, list, x.entity)
		if err != nil {
			return shell.Result{}, fmt.Errorf("error getting assets for %s: %w", c.what, err)
		}
		env = asset.Env(env, unpacked)
	}
	env = append(env, x.request.Secrets...)
	if allowed == nil || allowed.EnableEnv {
		env = append(env, c.env...)
	}
	if allowed != nil {
		if err := allowed.verify(c.line, env, c.what); err != nil {
			return shell.Result{}, err
		}
	}
	run := shell.Command{Line: c.line, Env: env, Timeout: time.Duration(c.timeout) * time.Second}
	if c.stdin {
		if run.Stdin, err = json.Marshal(x.event); err != nil {
			return shell.Result{}, fmt.Errorf("error marshaling json from event: %w", err)
		}
	}
	ended := shell.Run(ctx, run)
	if ended.Err != nil {
		return shell.Result{}, ended.Err
	}
	if ended.TimedOut {
		ended.Output = append([]byte(timedOut), ended.Output...)
	}
	if ended.Dropped > 0 {
		cfg.Log.Warn("truncated the output of a command", "check", x.check.Name, "kept_bytes", len(ended.Output),
			"dropped_bytes", ended.Dropped)
	}
	return ended, nil
}

// metrics reads the points of the output, and judges them where the check itself is content.
func (x *execution) metrics() {
	c := x.event.Check
	if c.MetricFormat == "" && len(c.MetricHandlers) == 0 {
		return
	}
	x.event.Metrics = &monitor.Metrics{Handlers: c.MetricHandlers}
	if c.MetricFormat == "" {
		return
	}
	list, problems := points.Read(points.Input{Format: c.MetricFormat, Output: c.Output, Executed: c.Executed,
		Tags: c.MetricTags})
	x.event.Metrics.Points = list
	if len(problems) > 0 {
		x.agent.cfg.Log.Warn("metrics cannot be read", "check", c.Name, "error", errors.Join(problems...))
	}
	if c.Status != 0 || len(list) == 0 || len(c.MetricThresholds) == 0 {
		return
	}
	judged := points.Judge(list, c.MetricThresholds)
	c.Status = judged.Status
	if x.event.Annotations == nil {
		x.event.Annotations = map[string]string{}
	}
	for k, v := range judged.Annotations {
		x.event.Annotations[k] = v
	}
}

// result makes the check of an event of its configuration.
func result(c *monitor.CheckConfig) *monitor.Check {
	return &monitor.Check{
		Meta: c.Meta, Command: c.Command, Handlers: c.Handlers, HighFlapThreshold: c.HighFlapThreshold, Interval: c.Interval,
		LowFlapThreshold: c.LowFlapThreshold,
		Publish:          c.Publish, RuntimeAssets: c.RuntimeAssets, Subscriptions: c.Subscriptions,
		ProxyEntityName: c.ProxyEntityName, CheckHooks: c.CheckHooks,
		Stdin: c.Stdin, Subdue: c.Subdue, Cron: c.Cron, TTL: c.TTL, Timeout: c.Timeout, ProxyRequests: c.ProxyRequests,
		RoundRobin:   c.RoundRobin,
		MetricFormat: c.MetricFormat, MetricHandlers: c.MetricHandlers, EnvVars: c.EnvVars, MaxOutputSize: c.MaxOutputSize,
		DiscardOutput: c.DiscardOutput,
		Secrets:       c.Secrets, MetricTags: c.MetricTags, Scheduler: c.Scheduler, Pipelines: c.Pipelines,
		MetricThresholds: c.MetricThresholds, Subdues: c.Subdues,
		ExtendedAttributes: c.ExtendedAttributes,
	}
}
