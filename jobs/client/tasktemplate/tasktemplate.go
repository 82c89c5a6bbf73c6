// Package tasktemplate renders the templates of tasks, from the environment, the catalog, variables and secrets, and
// acts when what they say changes.
//
// What always holds:
//   - A task starts when all its templates are rendered from data that was there: a key that is missing is waited for.
//   - Files are written below the task's folder only, whatever links are there (os.Root), each whole.
//   - A template costs at most what kit/safetemplate allows, and reads at most maxDeps things.
//   - An unchanged result is not written and does nothing. Several templates that change together restart once.
//
// A Step may be used by any number of tasks. What watches for a task ends with Work.Life.
package tasktemplate

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/jobs/client/allocdir"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/safetemplate"
)

// Dep is something that a template reads.
type Dep struct{ Kind, Name string }

// The kinds of Dep, with what Value.Data is.
const (
	Key      = "key"      // string
	Keys     = "keys"     // []Pair
	Service  = "service"  // []Instance
	Native   = "native"   // []Instance
	Secret   = "secret"   // *SecretData
	Variable = "variable" // map[string]string
)

// Value is what is there. A Dep that is not Found has no Data.
type Value struct {
	Data  any
	Found bool
	Index uint64
}

// Pair is a key of the catalog.
type Pair struct{ Path, Key, Value string }

// Instance is an instance of a service.
type Instance struct {
	ID, Name, Node, Address, NodeAddress, Status string
	Port                                         int
	Tags                                         []string
	ServiceMeta                                  map[string]string
}

// SecretData is a secret.
type SecretData struct {
	Data          map[string]any
	LeaseDuration int
	Renewable     bool
}

// Source reads for one task.
type Source interface {
	// Get returns what is there, at once with after 0, else when its index is another or after a while.
	Get(ctx context.Context, d Dep, after uint64) (Value, error)
}

// Step is the step of a task's start. It implements allocrunner.Step.
type Step struct {
	Source func(w *allocrunner.Work) Source
	Clock  clock.Clock
}

const (
	// maxDeps bounds what the templates of a task read.
	maxDeps = 256
	// patience is how long a template waits before an event says what for.
	patience = 5 * time.Second
)

// limits of a template. Configuration files are larger than what operators' filters are.
var limits = safetemplate.Limits{TextBytes: 1 << 20, OutputBytes: 4 << 20, MadeBytes: 64 << 20, Steps: 200_000,
	Time: 2 * time.Second}

// set are the templates of a task.
type set struct {
	step   *Step
	work   *allocrunner.Work
	source Source
	list   []*one
	values map[Dep]Value
	seen   map[Dep]bool // that the last rendering read
}

// one is a template.
type one struct {
	given  *jobwire.Template
	parsed *safetemplate.Template
	dest   string
	text   string // as rendered last
	done   bool   // it was rendered
	once   bool
}

// Prepare implements allocrunner.Step.
func (s *Step) Prepare(ctx context.Context, w *allocrunner.Work) error {
	if len(w.Task.Templates) == 0 {
		return nil
	}
	t := &set{step: s, work: w, source: s.Source(w), values: map[Dep]Value{}}
	for _, given := range w.Task.Templates {
		if err := t.add(given); err != nil {
			return errkind.E(errkind.Invalid, "template", err)
		}
	}
	if err := t.first(ctx); err != nil {
		return err
	}
	if err := t.write(t.list); err != nil {
		return err
	}
	if err := t.environment(); err != nil {
		return err
	}
	for _, o := range t.list {
		if !o.once && len(t.values) > 0 {
			w.Go(func() { t.watch(w.Life) })
			break
		}
	}
	return nil
}

// add reads a template.
func (t *set) add(given *jobwire.Template) error {
	o := &one{given: given, dest: clean(t.work.Env.Replace(jobwire.Get(given.DestPath))), once: jobwire.Get(given.Once)}
	text := jobwire.Get(given.EmbeddedTmpl)
	if src := t.work.Env.Replace(jobwire.Get(given.SourcePath)); src != "" {
		data, err := t.read(src)
		if err != nil {
			return err
		}
		text = string(data)
	}
	l := limits
	l.Left, l.Right = jobwire.Get(given.LeftDelim), jobwire.Get(given.RightDelim)
	var err error
	o.parsed, err = safetemplate.Parse(o.dest, text, t.functions, l)
	t.list = append(t.list, o)
	return err
}

// clean is a path below the task's folder; the absolute ones that the environment names are those of the task.
func clean(name string) string {
	return strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(name)), "/")
}

// below is where a path is: in the task's folder or the shared one.
func (t *set) below(name string) (root, rel string) {
	for dir, top := range map[string]string{t.work.Dirs.Shared: t.work.Dirs.Shared, t.work.Dirs.Task: t.work.Dirs.Task,
		t.work.Env.Vars["NOMAD_ALLOC_DIR"]: t.work.Dirs.Shared} {
		if rel, ok := strings.CutPrefix("/"+strings.TrimPrefix(name, "/"), dir+"/"); ok && dir != "" {
			return top, clean(rel)
		}
	}
	return t.work.Dirs.Task, clean(name)
}

// read reads a file of the task.
func (t *set) read(name string) ([]byte, error) {
	top, rel := t.below(name)
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(rel)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > int64(limits.TextBytes) {
		return nil, errkind.Errorf(errkind.TooLarge, "%s is no file of at most %d bytes", name, limits.TextBytes)
	}
	return root.ReadFile(rel)
}

// render renders everything; missing is what was not there.
func (t *set) render() (changed []*one, missing []Dep, err error) {
	t.seen = map[Dep]bool{}
	for _, o := range t.list {
		if o.once && o.done {
			continue
		}
		text, err := o.parsed.Execute(nil, jobwire.Get(o.given.ErrMissingKey))
		if err != nil {
			return nil, nil, err
		}
		if !o.done || text != o.text {
			o.text = text
			changed = append(changed, o)
		}
	}
	for d := range t.seen {
		if v, ok := t.values[d]; !ok || !v.Found && needed(d) {
			missing = append(missing, d)
		}
	}
	if len(t.seen) > maxDeps {
		return nil, nil, errkind.Errorf(errkind.TooLarge, "the templates of the task read more than %d things", maxDeps)
	}
	return changed, missing, nil
}

// needed reports whether a template waits for d; "?" in front of a name does not.
func needed(d Dep) bool {
	return (d.Kind == Key || d.Kind == Secret || d.Kind == Variable) && !strings.HasPrefix(d.Name, "?")
}

// get asks the source.
func (t *set) get(ctx context.Context, d Dep, after uint64) (Value, error) {
	d.Name = strings.TrimPrefix(d.Name, "?")
	return t.source.Get(ctx, d, after)
}

// first renders until nothing is missing.
func (t *set) first(ctx context.Context) error {
	began, told := t.step.Clock.Now(), false
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
	for {
		_, missing, err := t.render()
		if err != nil {
			return errkind.E(errkind.Invalid, "template", err)
		}
		if len(missing) == 0 {
			return nil
		}
		var last error
		waiting := false
		for _, d := range missing {
			v, err := t.get(ctx, d, 0)
			if err != nil {
				last = err
				continue
			}
			t.values[d] = v
			waiting = waiting || !v.Found && needed(d)
		}
		if last == nil && !waiting {
			continue
		}
		if !told && t.step.Clock.Since(began) >= patience {
			told = true
			t.work.Note("Template", missingText(missing, last))
		}
		timer := t.step.Clock.NewTimer(retry.Next())
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

func missingText(missing []Dep, err error) string {
	var names []string
	for _, d := range missing[:min(len(missing), 3)] {
		names = append(names, d.Kind+"("+d.Name+")")
	}
	text := "Missing: " + strings.Join(names, ", ")
	if more := len(missing) - 3; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	if err != nil {
		text += ": " + err.Error()
	}
	return text
}

// write writes what was rendered.
func (t *set) write(list []*one) error {
	for _, o := range list {
		o.done = true
		top, rel := t.below(o.dest)
		if err := writeFile(top, rel, o.text, jobwire.Get(o.given.Perms)); err != nil {
			return errkind.E(errkind.Invalid, "template "+o.dest, err)
		}
	}
	return nil
}

func writeFile(top, rel, text, perms string) error {
	mode := fs.FileMode(0o644)
	if n, err := strconv.ParseUint(perms, 8, 12); err == nil {
		mode = fs.FileMode(n) & 0o777
	}
	return allocdir.Replace(top, rel, []byte(text), mode)
}

// environment adds the variables of templates that are environments.
func (t *set) environment() error {
	for _, o := range t.list {
		if !jobwire.Get(o.given.Envvars) {
			continue
		}
		for n, line := range strings.Split(o.text, "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
			if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \x00") {
				return errkind.Errorf(errkind.Invalid, "template %s: line %d is not NAME=value", o.dest, n+1)
			}
			value = strings.TrimSpace(value)
			if unquoted, err := strconv.Unquote(value); err == nil && value != "" && value[0] != '\'' {
				value = unquoted
			}
			t.work.Extra[name] = strings.Trim(value, "'")
		}
	}
	return nil
}

// watch follows everything that the templates read.
func (t *set) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	type news struct {
		Dep
		Value
	}
	changes := make(chan news)
	following := map[Dep]bool{}
	follow := func() {
		for d := range t.seen {
			if following[d] {
				continue
			}
			following[d] = true
			after := t.values[d].Index
			followers.Go(func() {
				t.follow(ctx, d, after, func(v Value) {
					select {
					case changes <- news{d, v}:
					case <-ctx.Done():
					}
				})
			})
		}
	}
	follow()
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-changes:
			t.values[n.Dep] = n.Value
		}
		for settled := t.settle(ctx); settled != nil; { // more of the same change
			select {
			case n := <-changes:
				t.values[n.Dep] = n.Value
				continue
			case <-settled:
			case <-ctx.Done():
				return
			}
			break
		}
		changed, missing, err := t.render()
		follow()
		if err != nil {
			t.work.Note("Template", "Template failed to render: "+err.Error())
			continue
		}
		if len(missing) > 0 || len(changed) == 0 {
			continue
		}
		if err := t.write(changed); err != nil {
			t.work.Note("Template", err.Error())
			continue
		}
		if t.act(ctx, changed) {
			return // the task is prepared anew
		}
	}
}

// quiet is how long a change waits for others that belong to it.
const quiet = 100 * time.Millisecond

// settle is when a change has come to rest: the longest that a template wants to wait.
func (t *set) settle(context.Context) <-chan time.Time {
	wait := quiet
	for _, o := range t.list {
		if w := o.given.Wait; w != nil {
			wait = max(wait, time.Duration(jobwire.Get(w.Min)))
		}
	}
	return t.step.Clock.NewTimer(wait).C
}

// follow reports each change of d.
func (t *set) follow(ctx context.Context, d Dep, after uint64, report func(Value)) {
	retry := backoff.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second}
	for ctx.Err() == nil {
		v, err := t.get(ctx, d, max(after, 1))
		if err != nil || v.Index == 0 {
			timer := t.step.Clock.NewTimer(retry.Next())
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		retry.Reset()
		if v.Index != after {
			after = v.Index
			report(v)
		}
	}
}

// act does what changed templates want, and reports whether the task restarts.
func (t *set) act(ctx context.Context, changed []*one) (restarts bool) {
	signals := map[string]bool{}
	var splay time.Duration
	for _, o := range changed {
		splay = max(splay, time.Duration(jobwire.Get(o.given.Splay)))
		switch jobwire.Get(o.given.ChangeMode) {
		case "restart":
			restarts = true
		case "signal":
			signals[jobwire.Get(o.given.ChangeSignal)] = true
		}
	}
	if splay > 0 && (restarts || len(signals) > 0) {
		timer := t.step.Clock.NewTimer(time.Duration(rand.Int64N(int64(splay))))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
	}
	if restarts {
		return t.work.Restart("Template with change_mode restart re-rendered") == nil
	}
	for name := range signals {
		if err := t.work.Signal(name); err != nil {
			t.work.Note("Template", "the signal "+name+" could not be sent: "+err.Error())
		}
	}
	for _, o := range changed {
		if jobwire.Get(o.given.ChangeMode) == "script" && o.given.ChangeScript != nil {
			restarts = t.script(ctx, o.given.ChangeScript) || restarts
		}
	}
	return restarts
}

// script runs a change script in the task; a failure that counts restarts it.
func (t *set) script(ctx context.Context, s *jobwire.ChangeScript) bool {
	limited, cancel := context.WithTimeout(ctx, max(time.Duration(jobwire.Get(s.Timeout)), time.Second))
	defer cancel()
	command := append([]string{jobwire.Get(s.Command)}, s.Args...)
	code, err := t.work.Exec(limited, command)
	if err == nil && code == 0 {
		t.work.Note("Template Script", "Template ran the script "+command[0]+" with exit code 0")
		return false
	}
	t.work.Note("Template Script", "Template failed to run the script "+command[0]+" with exit code "+strconv.Itoa(code))
	return jobwire.Get(s.FailOnError) && t.work.Restart("the change script of a template failed") == nil
}
