package tasktoken

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// issuer issues tokens that live for an hour, and says what it was asked.
type issuer struct {
	mu     sync.Mutex
	asked  []string
	hangs  bool  // it answers nothing
	fails  error // of the secrets plane
	dead   bool  // tokens cannot be renewed
	number int
	open   int // questions that are open now, and the most of them
	most   int
	takes  time.Duration // an answer
}

func (i *issuer) answer(ctx context.Context, what string) (Token, error) {
	i.mu.Lock()
	i.asked = append(i.asked, what)
	i.open++
	i.most = max(i.most, i.open)
	hangs, fails := i.hangs, i.fails
	i.number++
	n := i.number
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		i.open--
		i.mu.Unlock()
	}()
	if hangs {
		<-ctx.Done()
		return Token{}, ctx.Err()
	}
	if fails != nil {
		return Token{}, fails
	}
	<-time.NewTimer(i.takes).C // of a bubble
	return Token{Text: fmt.Sprint(what, "-", n), Expires: time.Now().Add(time.Hour), Policies: []string{"app"}}, nil
}

func (i *issuer) Identity(_ context.Context, _ *allocrunner.Work, name string) (Token, error) {
	return Token{Text: "jwt." + name, Expires: time.Now().Add(time.Hour)}, nil
}

func (i *issuer) Secrets(ctx context.Context, _ *jobwire.Vault, identity string) (Token, error) {
	return i.answer(ctx, "login "+identity)
}

func (i *issuer) Renew(ctx context.Context, _ *jobwire.Vault, token string) (Token, error) {
	i.mu.Lock()
	dead := i.dead
	i.mu.Unlock()
	if dead {
		return Token{}, errkind.New(errkind.Denied, "permission denied")
	}
	return i.answer(ctx, "renew")
}

func (i *issuer) Catalog(context.Context, string) (Token, error) { return Token{Text: "catalog"}, nil }

func (i *issuer) GiveBack(_ context.Context, kind, token string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, "back "+kind+" "+token)
	return nil
}

// times counts what was asked.
func (i *issuer) times(what string) (n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, a := range i.asked {
		if strings.HasPrefix(a, what) {
			n++
		}
	}
	return n
}

// work is a task with what happened to it.
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

func (w *work) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.done, func(s string) bool { return strings.Contains(s, text) })
}

func newWork(dir string, life context.Context, task *jobwire.Task) *work {
	w := &work{}
	dirs := driver.Dirs{Task: filepath.Join(dir, "task"), Private: filepath.Join(dir, "private")}
	if err := os.MkdirAll(filepath.Join(dirs.Task, "secrets"), 0o755); err != nil {
		panic(err)
	}
	env := taskenv.New(&taskenv.Source{Alloc: "0123456789", Node: &jobs.Node{}, Job: &jobwire.Job{},
		Group: &jobwire.TaskGroup{}, Task: task, Dirs: dirs})
	w.Work = &allocrunner.Work{Task: task, Dirs: dirs, Env: env, Extra: map[string]string{}, Life: life,
		Tokens: &allocrunner.Tokens{}, Note: func(kind, text string) { w.did(kind + ": " + text) }, Go: w.group.Go,
		Restart: func(string) error { w.did("restart"); return nil },
		Signal:  func(name string) error { w.did(name); return nil }}
	return w
}

func file(t *testing.T, w *work, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Dirs.Task, name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func to[T any](v T) *T { return &v }

// TestTokens: a task finds what its blocks ask for; tokens are renewed while that lasts, and a new one restarts the
// task; one that outlived its agent goes on; at the end tokens are given back.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, dir := &issuer{}, t.TempDir()
		step := &Step{Issuer: i, Clock: clock.Real{}}
		life, end := context.WithCancel(t.Context())
		task := &jobwire.Task{Name: "t"}
		task.Vault = &jobwire.Vault{ChangeMode: to("restart"), Policies: []string{"app"}}
		task.Consul, task.Identity = &jobwire.Consul{}, &jobwire.WorkloadIdentity{Env: true}
		task.Identities = []*jobwire.WorkloadIdentity{{Name: "aws", File: true, ChangeMode: "signal", ChangeSignal: "SIGHUP"}}
		w := newWork(dir, life, task)
		if err := step.Prepare(t.Context(), w.Work); err != nil {
			t.Fatal(err)
		}
		first := w.Extra["VAULT_TOKEN"]
		if first != "login jwt.vault_default-1" || w.Extra["NOMAD_TOKEN"] != "jwt.default" ||
			w.Extra["CONSUL_HTTP_TOKEN"] != "catalog" || file(t, w, "secrets/vault_token") != first ||
			file(t, w, "secrets/nomad_aws.jwt") != "jwt.aws" || *w.Tokens.Secrets.Load() != first {
			t.Errorf("%v", w.Extra)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if n := i.times("renew"); n < 4 || n > 9 || i.times("login") != 1 || w.has("restart") || !w.has("SIGHUP") {
			t.Errorf("after 3 h: %d renewals, %q, %q", n, i.asked, w.done)
		}
		end() // the agent goes
		w.group.Wait()
		life, end = context.WithCancel(t.Context())
		again := newWork(dir, life, task)
		if err := step.Resume(t.Context(), again.Work); err != nil {
			t.Fatal(err)
		}
		if *again.Tokens.Secrets.Load() != first {
			t.Error("the token of before is forgotten")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if i.times("login") != 1 || again.has("restart") {
			t.Errorf("after the agent's restart: %q", i.asked)
		}
		i.mu.Lock()
		i.dead = true
		i.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if i.times("login") != 2 || !again.has("restart") || file(t, again, "secrets/vault_token") == first {
			t.Errorf("without renewals: %q %q", i.asked, again.done)
		}
		end()
		again.group.Wait()
		step.End(t.Context(), again.Work)
		if i.times("back secrets login") != 1 || i.times("back catalog catalog") != 1 {
			t.Errorf("at the end: %q", i.asked)
		}
	})
}

// TestTroubleDelaysOneTask: a secrets plane that answers nothing holds the tasks that need it, a few questions at once,
// and with pauses; a task without a token starts; when it answers, all start.
func TestTroubleDelaysOneTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, dir := &issuer{hangs: true}, t.TempDir()
		step := &Step{Issuer: i, Clock: clock.Real{},
			Gate: limit.NewGate(limit.GateConfig{Slots: 4, MaxWaiting: 100, MaxPerKey: 100, MaxWait: 5 * time.Minute})}
		life, end := context.WithCancel(t.Context())
		needs := &jobwire.Task{Name: "needs"}
		needs.Vault = &jobwire.Vault{ChangeMode: to("noop")}
		var works []*work
		ready := make(chan error, 20)
		for n := range 20 {
			w := newWork(filepath.Join(dir, fmt.Sprint(n)), life, needs)
			works = append(works, w)
			go func() { ready <- step.Prepare(t.Context(), w.Work) }()
		}
		other := newWork(filepath.Join(dir, "other"), life, &jobwire.Task{Name: "other"})
		if err := step.Prepare(t.Context(), other.Work); err != nil {
			t.Error("a task without a token:", err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if i.most > 4 || i.times("login") > 4*10/3+4 || len(ready) > 0 {
			t.Errorf("in 10 min: %d at once, %d logins, %d tasks ready", i.most, i.times("login"), len(ready))
		}
		if !works[0].has("Waiting for Token: The task waits for a token of the secrets plane") {
			t.Errorf("no event says what is waited for: %q", works[0].done)
		}
		i.mu.Lock()
		i.hangs = false
		i.mu.Unlock()
		for range works {
			if err := <-ready; err != nil {
				t.Error(err)
			}
		}
		end()
		for _, w := range works {
			w.group.Wait()
		}
	})
}

// TestSlowAnswerIsTaken: a secrets plane that needs 100 s for an answer is asked once, an event says what is waited for
// meanwhile, and the task starts.
func TestSlowAnswerIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{takes: 100 * time.Second}
		step := &Step{Issuer: i, Clock: clock.Real{}}
		life, end := context.WithCancel(t.Context())
		w := newWork(t.TempDir(), life, &jobwire.Task{Name: "t"})
		w.Task.Vault = &jobwire.Vault{ChangeMode: to("noop")}
		if err := step.Prepare(t.Context(), w.Work); err != nil {
			t.Error(err)
		}
		if i.times("login") != 1 || !w.has("Waiting for Token: The task waits for a token of the secrets plane") {
			t.Errorf("%d logins; events %q", i.times("login"), w.done)
		}
		end()
		w.group.Wait()
	})
}

// TestRefused: what is refused ends the start, so that the restart policy counts it.
func TestRefused(t *testing.T) {
	step := &Step{Issuer: &issuer{fails: errkind.New(errkind.Denied, "role not found")}, Clock: clock.Real{}}
	w := newWork(t.TempDir(), t.Context(), &jobwire.Task{Name: "t"})
	w.Task.Vault = &jobwire.Vault{}
	if err := step.Prepare(t.Context(), w.Work); !errkind.Is(err, errkind.Unavailable) ||
		!strings.Contains(err.Error(), "role not found") {
		t.Error(err)
	}
	step.Issuer = &issuer{}
	w.Task.Vault.Policies = []string{"root-of-all"}
	if err := step.Prepare(t.Context(), w.Work); err == nil || !strings.Contains(err.Error(), `"root-of-all"`) {
		t.Error(err)
	}
}
