package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/shell"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/script"
	"corbel.dev/corbel/monitor/secretresolver"
)

// mutator makes what a handler gets of an event. It never changes.
type mutator struct {
	item    *objects.Item // nil where it is built in
	assets  []*objects.Item
	def     *monitor.Mutator
	builtin func(*item) ([]byte, error)
	program *script.Program
	lib     *library
	breaker breaker
	err     error // why it can never work
}

const (
	mutatorJSON   = "json"
	mutatorOutput = "only_check_output"
)

var builtinMutators = map[string]*mutator{
	mutatorJSON: {builtin: (*item).text},
	mutatorOutput: {builtin: func(i *item) ([]byte, error) {
		e, err := i.whole()
		if err != nil {
			return nil, err
		}
		if e.Check == nil {
			return nil, errkind.Errorf(errkind.Invalid, "the event has no check, and so no output")
		}
		return []byte(e.Check.Output), nil
	}},
}

var errSecrets = errkind.New(errkind.Unavailable, "it names secrets, and nobody finds their values")

func compileMutator(i *objects.Item, assets []*objects.Item) *mutator {
	m := &mutator{item: i, assets: assets, def: i.Object().(*monitor.Mutator)}
	if m.def.Type == monitor.MutatorJavaScript {
		m.lib = newLibrary(assets)
		m.program, m.err = script.NewBody(m.def.Eval)
	}
	return m
}

// mutate returns what a handler gets.
func (m *mutator) mutate(ctx context.Context, p *Pipelines, i *item) ([]byte, error) {
	switch {
	case m.builtin != nil:
		return m.builtin(i)
	case m.program != nil:
		return m.evaluate(ctx, p, i)
	}
	text, err := i.text()
	if err != nil {
		return nil, err
	}
	secrets, err := p.secrets(ctx, m.def.Namespace, m.def.Secrets)
	if err != nil {
		return nil, err
	}
	r, err := p.command(ctx, m.def.Command, slices.Concat(m.def.EnvVars, secrets), m.assets, text, p.limit(m.def.Timeout))
	switch {
	case err != nil:
		return nil, err
	case r.TimedOut:
		return nil, errkind.Errorf(errkind.Unavailable, "its command did not end in time")
	case r.Status != 0:
		return nil, errkind.Errorf(errkind.Unavailable, "its command ended with status %d: %s", r.Status,
			excerpt(r.Output, secrets))
	case r.Dropped > 0:
		return nil, errkind.Errorf(errkind.TooLarge, "its command wrote more than %d bytes", len(r.Output))
	}
	return r.Output, nil
}

// evaluate runs the mutator's JavaScript.
func (m *mutator) evaluate(ctx context.Context, p *Pipelines, i *item) ([]byte, error) {
	now := time.Now()
	if m.breaker.open(now) {
		return nil, errkind.Errorf(errkind.Unavailable, "its script rests, since it ran too long again and again")
	}
	lib, err := m.lib.ready(ctx, p)
	if err != nil {
		return nil, err
	}
	text, err := i.text()
	if err != nil {
		return nil, err
	}
	t := script.Task{Program: m.program, Library: lib, Limit: time.Duration(m.def.Timeout) * time.Second, After: true,
		Fetch: p.others(i.p.Namespace),
		Vars:  []script.Var{{Name: "event", JSON: text}}}
	secrets, err := p.secrets(ctx, m.def.Namespace, m.def.Secrets)
	if err != nil {
		return nil, err
	}
	for _, v := range slices.Concat(m.def.EnvVars, secrets) {
		name, value, found := strings.Cut(v, "=")
		if !found {
			value = os.Getenv(name)
		}
		t.Vars = append(t.Vars, script.Var{Name: name, Text: value})
	}
	r, err := p.cfg.Scripts.Do(ctx, t)
	if err != nil {
		m.breaker.failed(err, now)
		return nil, err
	}
	m.breaker.fine()
	switch {
	case r.IsText:
		return []byte(r.Text), nil
	case r.Nil:
		return asEvent(r.After)
	}
	return nil, errkind.Errorf(errkind.Invalid, "its script returned neither a string nor nothing")
}

// asEvent refuses what a script left of an event when it is none any more.
func asEvent(text []byte) ([]byte, error) {
	var e monitor.Event
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, errkind.E(errkind.Invalid, "what its script made of the event", err)
	}
	return text, nil
}

// command runs a command of a handler or a mutator, with what its assets hold on its path.
func (p *Pipelines) command(ctx context.Context, line string, env []string, assets []*objects.Item, stdin []byte,
	limit time.Duration) (shell.Result, error) {
	environment, err := p.environment(ctx, env, assets)
	if err != nil {
		return shell.Result{}, err
	}
	r := shell.Run(ctx, shell.Command{Line: line, Env: environment, Stdin: stdin, Timeout: limit, OutputBytes: maxOutput})
	if r.Err != nil {
		return r, errkind.E(errkind.Unavailable, "its command", r.Err)
	}
	return r, nil
}

const (
	maxOutput = 16 << 20 // of a mutator; a handler's is read and forgotten
	said      = 256      // bytes of output that are shown in the log
	hideIn    = 64 << 10 // bytes of it that are looked at for secrets
)

// excerpt is the beginning of what a command wrote, without the values of its secrets.
func excerpt(out []byte, secrets []string) string {
	text := strings.TrimSpace(secretresolver.Hide(string(out[:min(len(out), hideIn)]), secrets))
	if len(text) > said {
		text = text[:said] + "..."
	}
	return fmt.Sprintf("%q", text)
}

// limit is a timeout of the contract's, in seconds; 0 is the longest that there is.
func (p *Pipelines) limit(seconds uint32) time.Duration {
	if seconds == 0 {
		return p.cfg.CommandTimeout
	}
	return time.Duration(seconds) * time.Second
}
