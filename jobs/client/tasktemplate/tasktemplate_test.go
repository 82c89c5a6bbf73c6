package tasktemplate

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/taskenv"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/clock"
)

// store is a source in memory.
type store struct {
	mu     sync.Mutex
	index  uint64
	values map[Dep]Value
	change chan struct{} // closed by the next change
}

func (s *store) set(d Dep, data any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index++
	s.values[d] = Value{Data: data, Found: true, Index: s.index}
	close(s.change)
	s.change = make(chan struct{})
}

// Get implements Source.
func (s *store) Get(ctx context.Context, d Dep, after uint64) (Value, error) {
	for {
		s.mu.Lock()
		v, change := s.values[d], s.change
		s.mu.Unlock()
		if v.Index == 0 {
			v.Index = 1
		}
		if after == 0 || v.Index != after {
			return v, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return Value{}, ctx.Err()
		}
	}
}

// work is a task's folder with what happened to it.
type work struct {
	*allocrunner.Work
	mu    sync.Mutex
	done  []string
	group sync.WaitGroup
}

func (w *work) did(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, text)
}

func newWork(t *testing.T, life context.Context, list ...*jobwire.Template) *work {
	dir := t.TempDir()
	for _, name := range []string{"task/local", "alloc"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	task := &jobwire.Task{Name: "t"}
	task.Templates = list
	w := &work{}
	dirs := driver.Dirs{Task: filepath.Join(dir, "task"), Shared: filepath.Join(dir, "alloc")}
	env := taskenv.New(&taskenv.Source{Alloc: "0123456789", Node: &jobs.Node{}, Job: &jobwire.Job{},
		Group: &jobwire.TaskGroup{}, Task: task, Dirs: dirs})
	w.Work = &allocrunner.Work{Task: task, Dirs: dirs, Env: env, Extra: map[string]string{}, Life: life,
		Note: func(kind, text string) { w.did(kind + ": " + text) }, Go: w.group.Go,
		Restart: func(string) error { w.did("restart"); return nil },
		Signal:  func(name string) error { w.did(name); return nil }}
	return w
}

func to[T any](v T) *T { return &v }

func tmpl(text, dest, mode string) *jobwire.Template {
	return &jobwire.Template{EmbeddedTmpl: &text, DestPath: &dest, LeftDelim: to("{{"), RightDelim: to("}}"),
		TemplateReload: jobwire.TemplateReload{ChangeMode: &mode, ChangeSignal: to("SIGHUP"),
			Splay: to(jobwire.Duration(time.Second))}}
}

func (w *work) file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Dirs.Task, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRendersAndFollows: a task waits for what is missing, and a change signals or restarts once.
func TestRendersAndFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{values: map[Dep]Value{}, change: make(chan struct{}), index: 1}
		life, end := context.WithCancel(t.Context())
		env := tmpl("A={{ key \"a\" }}\nB=\"{{ keyOrDefault \"none\" \"b c\" }}\"\n", "secrets/env", "noop")
		env.Envvars = to(true)
		w := newWork(t, life, env,
			tmpl(`{{ range service "web" }}{{ .Address }}:{{ .Port }} {{ end }}`, "local/web", "signal"),
			tmpl(`{{ with secret "kv/x" }}{{ .Data.password }}{{ end }} {{ with nomadVar "v" }}{{ .k }}{{ end }}`, "local/s",
				"restart"))
		step := &Step{Clock: clock.Real{}, Source: func(*allocrunner.Work) Source { return s }}
		ready := make(chan error, 1)
		go func() { ready <- step.Prepare(t.Context(), w.Work) }()
		time.Sleep(time.Minute)
		select {
		case err := <-ready:
			t.Fatal("it is ready without its data:", err)
		default:
		}
		s.set(Dep{Key, "a"}, "1")
		s.set(Dep{Secret, "kv/x"}, &SecretData{Data: map[string]any{"password": "pw"}})
		s.set(Dep{Variable, "v"}, map[string]string{"k": "var"})
		if err := <-ready; err != nil {
			t.Fatal(err)
		}
		if w.Extra["A"] != "1" || w.Extra["B"] != "b c" || w.file(t, "local/s") != "pw var" || w.file(t, "local/web") != "" {
			t.Errorf("%v %q", w.Extra, w.file(t, "local/s"))
		}
		w.done = nil
		s.set(Dep{Service, "web"}, []Instance{{Address: "10.0.0.1", Port: 80}})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := w.file(t, "local/web"); got != "10.0.0.1:80 " || len(w.done) != 1 || w.done[0] != "SIGHUP" {
			t.Errorf("%q %v", got, w.done)
		}
		s.set(Dep{Key, "a"}, "1") // the same again
		time.Sleep(3 * time.Second)
		synctest.Wait()
		s.set(Dep{Variable, "v"}, map[string]string{"k": "new"})
		s.set(Dep{Secret, "kv/x"}, &SecretData{Data: map[string]any{"password": "new"}})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if w.file(t, "local/s") != "new new" || len(w.done) != 2 || w.done[1] != "restart" {
			t.Errorf("%q %v", w.file(t, "local/s"), w.done)
		}
		end()
		w.group.Wait()
	})
}

// TestRefuses: nothing is written outside of the task's folder, and a template cannot run for ever.
func TestRefuses(t *testing.T) {
	s := &store{values: map[Dep]Value{}, change: make(chan struct{})}
	step := &Step{Clock: clock.Real{}, Source: func(*allocrunner.Work) Source { return s }}
	for name, c := range map[string]struct {
		given *jobwire.Template
		fine  bool
	}{
		"plain":     {tmpl("x {{ env \"NOMAD_TASK_NAME\" }}", "local/x", "noop"), true},
		"dots":      {tmpl("x", "../../x", "noop"), true}, // it is in the task's folder
		"link":      {tmpl("x", "local/out/x", "noop"), false},
		"syntax":    {tmpl("{{ nothing }}", "local/x", "noop"), false},
		"loop":      {tmpl(`{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}`, "local/x", "noop"), false},
		"file":      {tmpl(`{{ file "/etc/passwd" }}`, "local/x", "noop"), false},
		"no source": {&jobwire.Template{SourcePath: to("local/none"), DestPath: to("x")}, false},
		"env": {&jobwire.Template{EmbeddedTmpl: to("no variable"), DestPath: to("x"), Envvars: to(true)},
			false},
	} {
		w := newWork(t, t.Context(), c.given)
		outside := t.TempDir()
		if err := os.Symlink(outside, filepath.Join(w.Dirs.Task, "local", "out")); err != nil {
			t.Fatal(err)
		}
		if err := step.Prepare(t.Context(), w.Work); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
		if list, _ := os.ReadDir(outside); len(list) > 0 {
			t.Errorf("%s: something is written outside", name)
		}
	}
}
